"""Federated training: partitions, rounds, aggregation, and sums that tell nobody's own values."""

from leakgauge.fl.engine import Engine, InProcess, Job, Reply, work
from leakgauge.fl.errors import DroppedError, FederationError, SecureSumError
from leakgauge.fl.federate import Federation, federate
from leakgauge.fl.history import History, Lost, RoundLog
from leakgauge.fl.partitions import Partition, dirichlet, iid, mcmahan, shards
from leakgauge.fl.sums import SecureSums, Totals, fixed_point, from_fixed_point

__all__ = [
    "DroppedError",
    "Engine",
    "Federation",
    "FederationError",
    "History",
    "InProcess",
    "Job",
    "Lost",
    "Partition",
    "Reply",
    "RoundLog",
    "SecureSumError",
    "SecureSums",
    "Totals",
    "dirichlet",
    "federate",
    "fixed_point",
    "from_fixed_point",
    "iid",
    "mcmahan",
    "shards",
    "work",
]
