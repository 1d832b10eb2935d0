"""L-BFGS with a strong-Wolfe line search, for N problems that each are at their own place in it.

Every evaluation is one batched call at one trial point per problem. A problem that accepted its trial starts its
next line search at once; its neighbours may still be bracketing or zooming.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import guards
from leakgauge.adversary.solver.problem import Problem, Solution, Solver
from leakgauge.adversary.solver.schedules import Constant
from leakgauge.adversary.solver.watch import Watch
from leakgauge.errors import DomainError
from leakgauge.expr import register
from leakgauge.types import Progress

State = dict[str, Tensor]
BRACKET, ZOOM = 0, 1


@register("solver", "lbfgs")
@dataclass(frozen=True, repr=False)
class Lbfgs(Solver):
    """Limited-memory BFGS; ``steps`` counts evaluations, line search included.

    The step satisfies ``f(t) ≤ f(0) + c₁ t f'(0)`` and ``|f'(t)| ≤ c₂ |f'(0)|``. Unknowns are not boxed: a
    projection would break the line search. For smooth networks (sigmoid); with ReLU and total variation a signed
    Adam does better. A problem ends when its gradient falls below ``gradient_tolerance`` or, after ``searches``
    trials, no lower point is found along the gradient itself.

    References:
        Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5, 3.6 and 7.4.
    """

    steps: int = 1000
    lr: float = 1.0
    history: int = 50
    searches: int = 25
    wolfe: tuple[float, float] = (1e-4, 0.9)
    gradient_tolerance: float = 1e-12
    patience: int | None = None
    tolerance: float = 1e-4
    target: float | None = None

    def __post_init__(self) -> None:
        guards.count(self.steps, "steps", "lbfgs")
        guards.count(self.history, "history", "lbfgs")
        if not 0 < self.wolfe[0] < self.wolfe[1] < 1:
            remedy = "say wolfe=(1e-4, 0.9)"
            raise DomainError(f"wolfe must be 0 < c1 < c2 < 1, got {self.wolfe}", where="lbfgs", remedy=remedy)

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        if not isinstance(problem.anneal, Constant):
            raise DomainError(
                f"anneal={problem.anneal!r} changes the objective between two trials of a line search",
                where="lbfgs",
                remedy="use adam() with it, or leave anneal out",
            )
        point = problem.flat(problem.start).clone()
        watch = Watch(problem, point, self.steps, self.patience, self.tolerance, self.target, progress)
        state = self._begin(problem, watch, point)
        for step in range(1, self.steps):
            if not len(state["x"]):
                break
            trial = state["x"] + state["t"].unsqueeze(1) * state["d"]
            value, gradient = problem.slope(trial, watch.running, step, self.steps)
            f = -(value.likelihood + value.prior)
            keep = watch.see(step, trial, value, gradient, forgive=True)
            if keep is not None:
                state, f, gradient = {k: v[keep] for k, v in state.items()}, f[keep], gradient[keep]
            self._advance(state, f.nan_to_num(nan=torch.inf), gradient)
            state = self._release(state, watch)
        return watch.solution()

    def _begin(self, problem: Problem, watch: Watch, point: Tensor) -> State:
        value, gradient = problem.slope(point, watch.running, 0, self.steps)
        keep = watch.see(0, point, value, gradient)
        f = -(value.likelihood + value.prior)
        if keep is not None:
            point, f, gradient = point[keep], f[keep], gradient[keep]
        n, d = point.shape
        zeros = point.new_zeros(n)
        state = {
            "x": point,
            "f": f,
            "g": gradient,
            "s": point.new_zeros(n, self.history, d),
            "y": point.new_zeros(n, self.history, d),
            "sy": torch.eye(self.history, dtype=point.dtype, device=point.device).repeat(n, 1, 1),
            "yy": point.new_zeros(n, self.history, self.history),
            "g_lo": gradient.clone(),
            **{name: zeros.clone() for name in ("t_lo", "f_lo", "m_lo", "t_hi", "f_hi", "m_hi", "slope", "t")},
            **{name: torch.zeros(n, dtype=torch.long, device=point.device) for name in ("phase", "tries", "stuck")},
        }
        self._turn(state, torch.ones(n, dtype=torch.bool, device=point.device), first=True)
        return state

    def _advance(self, state: State, f: Tensor, gradient: Tensor) -> None:
        """One trial of every problem: accept, bracket or zoom."""
        c1, c2 = self.wolfe
        t, slope = state["t"], state["slope"]
        m = (gradient * state["d"]).sum(1)  # f'(t) along the direction
        bracket = state["phase"] == BRACKET
        high = (f > state["f"] + c1 * t * slope) | (f >= state["f_lo"]) & (~bracket | (state["tries"] > 0))
        high |= ~m.isfinite()
        wolfe = ~high & (m.abs() <= -c2 * slope)
        rising = ~high & ~wolfe & torch.where(bracket, m >= 0, m * (state["t_hi"] - state["t_lo"]) >= 0)
        falling = ~high & ~wolfe & ~rising

        # too high: the trial is the far end of the bracket
        _put(state, high, t_hi=t, f_hi=f, m_hi=m)
        # slope has turned: the old near end becomes the far end, the trial the near one
        _put(state, rising, t_hi=state["t_lo"].clone(), f_hi=state["f_lo"].clone(), m_hi=state["m_lo"].clone())
        _put(state, rising | falling, t_lo=t, f_lo=f, m_lo=m)
        state["g_lo"] = torch.where((rising | falling).unsqueeze(1), gradient, state["g_lo"])
        zoom = ~wolfe & (high | rising | ~bracket)
        state["phase"] = torch.where(zoom, ZOOM, state["phase"])
        state["tries"] = state["tries"] + 1
        state["t"] = torch.where(zoom, _cubic(state), 2 * t)

        out = ~wolfe & (state["tries"] >= self.searches)
        lower = out & (state["f_lo"] < state["f"]) & (state["t_lo"] > 0)
        self._accept(state, wolfe, t, f, gradient)
        self._accept(state, lower, state["t_lo"].clone(), state["f_lo"].clone(), state["g_lo"])
        lost = out & ~lower
        _forget(state, lost)  # the curvature misled it: try the gradient
        state["stuck"] = torch.where(lost, state["stuck"] + 1, state["stuck"])
        self._turn(state, lost, first=True)

    def _accept(self, state: State, which: Tensor, t: Tensor, f: Tensor, gradient: Tensor) -> None:
        if not bool(which.any()):
            return
        column = which.unsqueeze(1)
        s = torch.where(column, t.unsqueeze(1) * state["d"], 0.0)
        y = torch.where(column, gradient - state["g"], 0.0)
        curved = which & ((s * y).sum(1) > 1e-10 * y.square().sum(1).clamp(min=torch.finfo(y.dtype).tiny))
        rows = curved.nonzero().squeeze(1)
        if len(rows):
            _remember(state, rows, s[rows], y[rows])
        state["x"] = state["x"] + s
        state["g"] = torch.where(column, gradient, state["g"])
        state["f"] = torch.where(which, f, state["f"])
        state["stuck"] = torch.where(which, 0, state["stuck"])
        self._turn(state, which)

    def _turn(self, state: State, which: Tensor, first: bool = False) -> None:
        """A new direction and an empty bracket for ``which``."""
        if not bool(which.any()):
            return
        d = -state["g"] if first else -_two_loop(state)
        slope = (d * state["g"]).sum(1)
        downhill = slope < 0
        d = torch.where(downhill.unsqueeze(1), d, -state["g"])
        slope = torch.where(downhill, slope, -state["g"].square().sum(1))
        length = state["g"].abs().sum(1).clamp(min=torch.finfo(d.dtype).tiny)
        t = self.lr * (1 / length).clamp(max=1.0) if first else torch.full_like(slope, self.lr)
        state["d"] = torch.where(which.unsqueeze(1), d, state.get("d", d))
        state["g_lo"] = torch.where(which.unsqueeze(1), state["g"], state["g_lo"])
        zero = torch.zeros_like(t)
        _put(state, which, slope=slope, t=t, t_lo=zero, f_lo=state["f"], m_lo=slope, t_hi=zero, f_hi=zero, m_hi=zero)
        state["phase"] = torch.where(which, BRACKET, state["phase"])
        state["tries"] = torch.where(which, 0, state["tries"])

    def _release(self, state: State, watch: Watch) -> State:
        """Let go of problems at a stationary point."""
        flat = (state["g"].abs().amax(1) <= self.gradient_tolerance) | (state["stuck"] > 1)
        if not bool(flat.any()):
            return state
        watch.leave(flat, "plateau")
        return {name: value[~flat] for name, value in state.items()}


def _put(state: State, which: Tensor, **values: Tensor) -> None:
    for name, value in values.items():
        state[name] = torch.where(which, value, state[name])


def _cubic(state: State) -> Tensor:
    """The minimiser of the cubic through both ends of the bracket, kept away from them."""
    t0, t1 = state["t_lo"], state["t_hi"]
    width = t1 - t0
    safe = torch.where(width == 0, 1.0, width)
    d1 = state["m_lo"] + state["m_hi"] - 3 * (state["f_lo"] - state["f_hi"]) / -safe
    root = d1.square() - state["m_lo"] * state["m_hi"]
    d2 = width.sign() * root.clamp(min=0).sqrt()
    step = t1 - width * (state["m_hi"] + d2 - d1) / (state["m_hi"] - state["m_lo"] + 2 * d2)
    low, high = torch.minimum(t0, t1), torch.maximum(t0, t1)
    inside = torch.minimum(torch.maximum(step, low + 0.1 * (high - low)), high - 0.1 * (high - low))
    usable = step.isfinite() & (root >= 0)
    return torch.where(usable, inside, (t0 + t1) / 2)


def _remember(state: State, rows: Tensor, s: Tensor, y: Tensor) -> None:
    """Push a pair of differences, and its products with those that are kept."""
    for name, newest in (("s", s), ("y", y)):
        state[name][rows] = torch.cat([state[name][rows, 1:], newest.unsqueeze(1)], 1)
    for name, with_newest in (("sy", state["s"][rows]), ("yy", state["y"][rows])):
        products = torch.roll(state[name][rows], (-1, -1), (1, 2))
        column = (with_newest @ y.unsqueeze(2)).squeeze(2)
        products[:, :, -1] = column
        products[:, -1, :] = column if name == "yy" else 0.0
        products[:, -1, -1] = column[:, -1]
        state[name][rows] = products


def _forget(state: State, which: Tensor) -> None:
    """An empty history: zero differences, and a unit diagonal that leaves the solves as they are."""
    rows = which.nonzero().squeeze(1)
    for name in ("s", "y", "yy"):
        state[name][rows] = 0.0
    state["sy"][rows] = torch.eye(state["sy"].shape[1], dtype=state["sy"].dtype, device=which.device)


def _two_loop(state: State) -> Tensor:
    """``H g``: the two-loop recursion, solved as two triangular systems.

    With ``R_ij = ⟨s_i, y_j⟩`` for i ≤ j and D its diagonal: ``R α = S g``, ``Rᵀ c = D α − γ Y(g − Yᵀα)`` and
    ``H g = γ (g − Yᵀ α) + Sᵀ c``. An empty slot has a unit on the diagonal and does nothing.

    References:
        Byrd, Nocedal and Schnabel, Representations of Quasi-Newton Matrices, 1994.
    """
    s, y, r, yy = state["s"], state["y"], state["sy"].triu(), state["yy"]
    g = state["g"].unsqueeze(2)
    square = yy[:, -1, -1]
    gamma = torch.where(square > 0, r[:, -1, -1] / square.clamp(min=torch.finfo(g.dtype).tiny), 1.0).view(-1, 1, 1)
    alpha = torch.linalg.solve_triangular(r, s @ g, upper=True)
    rest = y @ g - yy @ alpha
    diagonal = r.diagonal(dim1=1, dim2=2).unsqueeze(2)
    c = torch.linalg.solve_triangular(r.transpose(1, 2), diagonal * alpha - gamma * rest, upper=False)
    step: Tensor = gamma * (g - y.transpose(1, 2) @ alpha) + s.transpose(1, 2) @ c
    return step.squeeze(2)
