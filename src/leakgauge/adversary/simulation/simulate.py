"""From a chain with parts that say nothing of themselves to one that the adversary can reason about.

``release`` is run on updates that the adversary computed itself. What only renames, scales or shifts entries is undone;
a deterministic map is differentiated as it is, or probed entry by entry where it is linear; of a random one, mean and
variance per entry are estimated. What is left is not modelled, and silence about it means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from leakgauge.adversary.simulation.mechanism import AskedError, Known, Mechanism, RefusedError, known_updates
from leakgauge.adversary.simulation.models import model_of
from leakgauge.adversary.simulation.stand_ins import Rearranged, StandIn
from leakgauge.defenses import Chain, Identity, UpdatePart
from leakgauge.defenses.update.chain import is_noise
from leakgauge.errors import LeakgaugeError
from leakgauge.observation import Observation
from leakgauge.task import Task


@dataclass(frozen=True)
class Simulation:
    """``task`` with stand-ins in its update stage; ``undone`` parts were the last ones, and observations lose them.

    ``unmodelled`` names the parts that could not be simulated, each with the reason.
    """

    task: Task
    stand_ins: tuple[StandIn, ...] = ()
    undone: tuple[Rearranged, ...] = ()
    unmodelled: tuple[tuple[UpdatePart, str], ...] = ()

    def observed(self, observations: Sequence[Observation]) -> list[Observation]:
        """The observations before the undone parts, without grants that the simulated task does not know."""
        return [self._observed(one) for one in observations]

    def _observed(self, observation: Observation) -> Observation:
        rounds = []
        for one in observation.rounds:
            stack = {name: value.unsqueeze(0) for name, value in one.observed.items()}
            for part in self.undone:
                stack = part.undone(stack) or stack
            granted = {address: value for address, value in one.granted.items() if address in self.task.nuisances}
            observed = {name: value.squeeze(0) for name, value in stack.items()} if self.undone else one.observed
            rounds.append(replace(one, observed=observed, granted=granted))
        return replace(observation, rounds=tuple(rounds))


def is_silent(part: UpdatePart) -> bool:
    """Whether a part has nothing but a ``release``."""
    kind = type(part)
    verbs = ("apply", "before", "after", "density_given")
    return not is_noise(part) and all(getattr(kind, verb) is getattr(UpdatePart, verb) for verb in verbs)


def simulate(task: Task, *, silent: Callable[[UpdatePart], bool] = is_silent) -> Simulation:
    """Put stand-ins in the places of the silent parts of a task's update stage."""
    parts = task.protection.chain.parts
    if not any(silent(part) and not isinstance(part, StandIn) for part in parts):
        return Simulation(task)
    stand_ins, unmodelled = list(parts), []
    known = _known(task)
    for i, part in enumerate(parts):
        if silent(part):
            model = known if isinstance(known, str) else _model(part, parts[:i], known)
            if isinstance(model, str):
                unmodelled.append((part, model))
            else:
                stand_ins[i] = model
    undone = []
    while isinstance(last := stand_ins[-1], Rearranged | Identity) and not unmodelled:
        if isinstance(last, Rearranged):
            if not last.how.is_bijection:
                break
            undone.append(last)
        stand_ins.pop()
        if not stand_ins:
            stand_ins = [Identity()]
            break
    named = tuple(part for part in (*stand_ins, *undone) if isinstance(part, StandIn))
    return Simulation(_with(task, stand_ins), named, tuple(undone), tuple(unmodelled))


def simulate_whole(task: Task) -> Simulation:
    """One stand-in for the whole update stage, where no likelihood of its parts fits together."""
    chain, known = task.protection.chain, _known(task)
    model = known if isinstance(known, str) else _model(chain, (), known)
    if isinstance(model, str):
        return Simulation(task, unmodelled=((task.protection.update, model),))
    model = replace(model, whole=True)
    return Simulation(_with(task, [model]), (model,))


def _with(task: Task, parts: Sequence[UpdatePart]) -> Task:
    update = parts[0] if len(parts) == 1 else Chain(tuple(parts))
    return replace(task, protection=replace(task.protection, update=update))


def _known(task: Task) -> tuple[Known, ...] | str:
    try:
        return tuple(known_updates(task))
    except (LeakgaugeError, RuntimeError, ValueError, IndexError) as fault:
        return f"no update of a random record can be computed ({fault})"


def _model(part: UpdatePart, before: tuple[UpdatePart, ...], known: tuple[Known, ...]) -> StandIn | str:
    try:
        return model_of(Mechanism(part, before, known))
    except AskedError as asked:
        return f"it asks the client for {asked}"
    except RefusedError as refused:
        return str(refused)
