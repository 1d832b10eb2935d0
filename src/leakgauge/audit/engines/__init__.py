"""Engines run the cells of a plan: in this process, in a pool of processes, in several runs that share a
folder, on a Ray cluster, or wherever somebody's own does."""

from leakgauge.audit.engines.base import Engine, Finished, finish, orphaned
from leakgauge.audit.engines.in_process import InProcess
from leakgauge.audit.engines.local_pool import LocalPool
from leakgauge.audit.engines.on_ray import RayCluster
from leakgauge.audit.engines.shared_folder import SharedFolder

__all__ = ["Engine", "Finished", "InProcess", "LocalPool", "RayCluster", "SharedFolder", "finish", "orphaned"]
