"""Engines run the cells of a plan: in this process, in a pool of processes, or wherever somebody's own does."""

from leakgauge.audit.engines.base import Engine, Finished, finish, orphaned
from leakgauge.audit.engines.in_process import InProcess
from leakgauge.audit.engines.local_pool import LocalPool

__all__ = ["Engine", "Finished", "InProcess", "LocalPool", "finish", "orphaned"]
