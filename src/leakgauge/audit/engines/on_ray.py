"""The same cells on an existing Ray cluster: its workers compute, this process commits."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load

from leakgauge import guards
from leakgauge.audit.cells import Cell
from leakgauge.audit.engines.base import Computed, Finished, commit, named, orphaned
from leakgauge.audit.engines.luggage import Luggage
from leakgauge.audit.engines.visiting import Answer, visit
from leakgauge.audit.environment import environment
from leakgauge.audit.store import Store
from leakgauge.errors import LeakgaugeError, MissingExtraError
from leakgauge.study.study import Study

DEATHS = 2
"""A cell whose worker died this often is quarantined: it would kill the next one, too."""
LOSSES = 5
"""How often a cell is begun anew because its node was lost, which is hardly its own fault."""
QUARANTINED = f"quarantined: its worker process died {DEATHS} times (out of memory?)"


@dataclass(frozen=True)
class RayCluster:
    """Cells as tasks of a Ray cluster that is already running.

    Workers get the study once per node, compute, and send back what a cell leaves; only this process writes to the run
    folder, which need not be shared. At most ``ahead`` cells per processor of the cluster are under way. A cell whose
    worker or node is lost runs again; one that kills its worker twice is quarantined and reported. Nodes must have the
    same versions and compute the same numbers as this machine, or they are refused. Token authentication must be on:
    whoever reaches an open Ray cluster can run code on it.
    """

    address: str
    ahead: int = 2

    def __post_init__(self) -> None:
        guards.count(self.ahead, "ahead", "RayCluster")

    def run(self, study: Study, cells: Sequence[Cell], store: Store) -> Iterator[Finished]:
        if not cells:
            return
        with _connected(self.address) as ray:
            yield from _Driver(ray, study, store, self.ahead).run(cells)


class _Driver:
    """One run of cells on a cluster."""

    def __init__(self, ray: Any, study: Study, store: Store, ahead: int) -> None:
        self.ray, self.store, self.ahead = ray, store, ahead
        self.task = ray.remote(num_cpus=1, max_retries=0)(visit)  # who died, and how often, is counted here
        self.luggage = ray.put(Luggage.of(study))
        self.key = self.luggage.hex()
        self.expected = environment()
        self.parents: dict[str, Any] = {}
        """Finished parents in the object store, each put there once."""
        self.died, self.lost = Counter[str](), Counter[str]()

    def run(self, cells: Sequence[Cell]) -> Iterator[Finished]:
        waiting, running = list(cells), dict[Any, Cell]()
        while waiting or running:
            self._submit(waiting, running)
            if not running:
                for cell in waiting:  # nothing can start any more: their parents failed
                    yield cell, orphaned(cell, self.store)
                return
            ended, _ = self.ray.wait(list(running), num_returns=1, timeout=5.0)
            for reference in ended:
                cell = running.pop(reference)
                fault = self._received(cell, reference)
                if isinstance(fault, _Again):
                    waiting.insert(0, cell)
                else:
                    yield cell, fault

    def _submit(self, waiting: list[Cell], running: dict[Any, Cell]) -> None:
        """As many cells under way as the cluster of this moment has use for."""
        most = max(1, int(self.ray.cluster_resources().get("CPU", 1)) * self.ahead)
        ready = (cell for cell in list(waiting) if orphaned(cell, self.store) is None)
        for cell in ready:
            if len(running) >= most:
                return
            parents = {parent: self._parent(parent) for parent in cell.parents}
            reference = self.task.remote(
                self.key,
                self.luggage,
                pickle.dumps(cell),
                tuple(parents),
                self.expected,
                self.store.redact,
                *parents.values(),  # Ray resolves what stands here, not what is inside a collection
            )
            waiting.remove(cell)
            running[reference] = cell

    def _parent(self, identity: str) -> Any:
        """A finished cell as the store has it."""
        if identity not in self.parents:
            result = self.store.result(identity)
            tensors = Luggage.of(self.store.tensors(identity), everything=True) if "tensors" in result else None
            self.parents[identity] = self.ray.put((result, tensors))
        return self.parents[identity]

    def _received(self, cell: Cell, reference: Any) -> str | _Again | None:
        """Commit what came back; None if all is well, the fault, or that the cell has to run again."""
        lost = self.ray.exceptions
        try:
            answer: Answer = self.ray.get(reference)
        except (lost.NodeDiedError, lost.ObjectLostError, lost.LocalRayletDiedError):
            self.lost[cell.id] += 1
            return _Again() if self.lost[cell.id] < LOSSES else f"its node was lost {LOSSES} times"
        except (lost.WorkerCrashedError, lost.OutOfMemoryError):
            self.died[cell.id] += 1
            return _Again() if self.died[cell.id] < DEATHS else self._quarantined(cell)
        except lost.RayError as fault:
            return named(fault, self.store)
        if answer.refused:
            raise LeakgaugeError(answer.refused, where="--engine ray", remedy="mend that node, or leave it out")
        outcome = None if answer.result is None else (answer.result, load(answer.tensors) if answer.tensors else {})
        return commit(cell, Computed(outcome, answer.seconds, answer.fault, answer.trace), self.store)

    def _quarantined(self, cell: Cell) -> str:
        commit(cell, Computed(None, fault=QUARANTINED, trace=QUARANTINED), self.store)
        return QUARANTINED


class _Again:
    """A cell has to run again: what computed it is gone."""


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster; whoever was connected before stays so."""
    _authenticated()
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise MissingExtraError(
            "needs the package ray", where="--engine ray", remedy="type: pip install 'leakgauge[ray]'"
        ) from None
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", ignore_reinit_error=True)
    except (ConnectionError, RuntimeError, ValueError, OSError) as fault:
        reason = next(iter(str(fault).splitlines()), type(fault).__name__)
        raise LeakgaugeError(
            f"cannot reach the cluster at {address!r} ({reason[:160]})",
            where="--address",
            remedy="check that `ray start --head` runs there, the port, and that both sides have the same token",
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


_QUIET: Mapping[str, str] = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
TOKEN = Path("~/.ray/auth_token")


def _authenticated() -> None:
    """Turn token authentication on in this process, and refuse to go on without a token."""
    mode = os.environ.setdefault("RAY_AUTH_MODE", "token")
    remedy = "start every node with RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN_PATH"
    if mode != "token":
        raise LeakgaugeError(f"RAY_AUTH_MODE is {mode!r}", where="--engine ray", remedy=remedy)
    named_one = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if not named_one and not TOKEN.expanduser().is_file():
        raise LeakgaugeError("there is no token of the cluster", where="--engine ray", remedy=remedy)
