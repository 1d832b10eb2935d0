"""``leakgauge bound``: what no adversary can beat, from the parameters of a defense alone."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from leakgauge import guards
from leakgauge.cli.terminal import echo
from leakgauge.errors import DomainError, ExitCode

if TYPE_CHECKING:
    from leakgauge.bounds import Privacy

app = typer.Typer(
    name="bound", help="What no adversary can beat, from the parameters of a defense alone.", no_args_is_help=True
)

Dim = Annotated[int, typer.Option(help="p, the number of parameters of the update.")]
Clip = Annotated[float, typer.Option(help="R, the clipping norm of the update.")]
Sigma = Annotated[float, typer.Option(help="Standard deviation of the noise.")]
Multiplier = Annotated[
    float, typer.Option("--sigma", help="Noise multiplier: standard deviation divided by clipping norm.")
]
Delta = Annotated[float, typer.Option(help="δ, in (0, 1).")]
Rate = Annotated[float, typer.Option(help="Poisson sampling rate, in (0, 1]; a rate below 1 needs leakgauge[dp].")]
Steps = Annotated[int, typer.Option(help="Number of noisy steps.")]
Method = Annotated[str, typer.Option(help="auto, exact, rdp or pld.")]
Unit = Annotated[str, typer.Option(help="What is protected: record or client.")]
Relation = Annotated[str, typer.Option(help="add-or-remove or replace.")]
Rounds = Annotated[int, typer.Option(help="Rounds in which the client takes part.")]
# Optional: typer reads the union | only from 0.12.4 on
OptionalDim = Annotated[Optional[int], typer.Option(help="p, the number of parameters.")]  # noqa: UP045
Layers = Annotated[Optional[str], typer.Option(help="Dimensions of layers clipped separately: 10,20,30.")]  # noqa: UP045
OptionalMu = Annotated[Optional[float], typer.Option(help="μ of one round; or --sigma and --clip.")]  # noqa: UP045
OptionalSigma = Annotated[Optional[float], typer.Option(help="Standard deviation of the noise.")]  # noqa: UP045
OptionalClip = Annotated[Optional[float], typer.Option(help="R, the clipping norm.")]  # noqa: UP045
GUESS = "Success of the best guess without an update (upper limit)."
OptionalGuess = Annotated[Optional[float], typer.Option(help=GUESS)]  # noqa: UP045
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _bounds() -> Any:
    """The package, imported when needed: ``--help`` should not wait for torch."""
    from leakgauge import bounds

    return bounds


LABELS = {
    "ball": "clipped to a ball",
    "pruned": "clipped and pruned",
    "product": "product of layers",
    "sqrt_ball": "√layers ball",
    "sum_ball": "layers ball",
    "sphere": "scaled to the sphere",
    "l1_ball": "clipped in L1",
    "epsilon_at_distance_2": "metric privacy: ε at distance 2",
    "epsilon_add_or_remove": "ε (add-or-remove), δ = 0",
}


@app.command()
def gaussian(
    sigma: Sigma,
    clip: Clip,
    dim: OptionalDim = None,
    layers: Layers = None,
    group: Annotated[int, typer.Option(help="L, for a mean of L clipped records with noise sigma/L.")] = 1,
    keep: Annotated[float, typer.Option(help="Probability that random pruning keeps a coordinate.")] = 1.0,
    rounds: Rounds = 1,
    as_printed: Annotated[
        bool, typer.Option(help="Use the paper's theorem as printed, which doubles the tail.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bayes capacity of Gaussian noise on a clipped update."""
    inputs = {"sigma": sigma, "clip": clip, "dim": dim, "layers": layers, "group": group, "keep": keep}
    if layers is not None:
        dims = _dimensions(layers)
        if dim not in (None, sum(dims)) or keep != 1:
            raise DomainError("--layers excludes --dim and --keep", where="bound gaussian", remedy="give one of them")
        capacity = _bounds().log_capacity_layers(dims, clip, sigma, group=group, as_printed=as_printed)
        logs = vars(capacity)
    elif dim is None:
        raise DomainError("the dimension is missing", where="bound gaussian", remedy="give --dim or --layers")
    elif keep != 1:
        if as_printed:
            raise DomainError(
                "the printed theorem does not cover pruning", where="bound gaussian", remedy="omit --keep"
            )
        logs = {"pruned": _bounds().log_capacity_pruned(dim, clip, sigma, keep, group=group)}
    else:
        logs = {"ball": _bounds().log_capacity_gaussian(dim, clip, sigma, group=group, as_printed=as_printed)}
    _capacities("gaussian", {**inputs, "as_printed": as_printed}, logs, rounds, as_json)


@app.command()
def vmf(
    kappa: Annotated[float, typer.Option(help="κ, the concentration of the noise, as in vmf(kappa=…).")],
    dim: Dim,
    rounds: Rounds = 1,
    as_json: AsJson = False,
) -> None:
    """Bayes capacity of von Mises-Fisher noise on an update scaled to the sphere."""
    logs = {"sphere": _bounds().log_capacity_vmf(dim, kappa)}
    extra = {"epsilon_at_distance_2": _bounds().vmf_epsilon(kappa)}
    _capacities("vmf", {"kappa": kappa, "dim": dim}, logs, rounds, as_json, extra)


@app.command()
def laplace(
    scale: Annotated[float, typer.Option(help="b, the scale of the noise.")],
    clip: Annotated[float, typer.Option(help="R, the L1 clipping norm.")],
    dim: Dim,
    rounds: Rounds = 1,
    as_json: AsJson = False,
) -> None:
    """Bayes capacity of Laplace noise on an update clipped in L1."""
    logs = {"l1_ball": _bounds().log_capacity_laplace(dim, clip, scale)}
    extra = {"epsilon_add_or_remove": _bounds().laplace_epsilon(clip, scale)}
    _capacities("laplace", {"scale": scale, "clip": clip, "dim": dim}, logs, rounds, as_json, extra)


@app.command()
def epsilon(
    sigma: Multiplier,
    delta: Delta,
    rate: Rate = 1.0,
    steps: Steps = 1,
    method: Method = "auto",
    unit: Unit = "record",
    relation: Relation = "add-or-remove",
    as_json: AsJson = False,
) -> None:
    """ε of Gaussian noise over subsampled steps."""
    options: Any = {"delta": delta, "rate": rate, "steps": steps, "method": method, "unit": unit, "relation": relation}
    _privacy(_bounds().epsilon_of(sigma, **options), as_json)


@app.command()
def sigma(
    epsilon: Annotated[float, typer.Option(help="ε to keep.")],
    delta: Delta,
    rate: Rate = 1.0,
    steps: Steps = 1,
    method: Method = "auto",
    unit: Unit = "record",
    relation: Relation = "add-or-remove",
    as_json: AsJson = False,
) -> None:
    """The smallest noise multiplier that keeps ε."""
    options: Any = {"delta": delta, "rate": rate, "steps": steps, "method": method, "unit": unit, "relation": relation}
    _privacy(_bounds().sigma_of(epsilon, **options), as_json)


@app.command()
def robustness(
    guess: Annotated[float, typer.Option(help=GUESS)],
    mu: OptionalMu = None,
    sigma: OptionalSigma = None,
    clip: OptionalClip = None,
    rounds: Rounds = 1,
    as_json: AsJson = False,
) -> None:
    """Ceiling on the probability of reconstructing a record, from how often a guess without any update succeeds.

    \b
    Example: a guess reaches the leak threshold on 1 % of records; noise 2 on updates clipped to 1, four rounds.
      leakgauge bound robustness --guess 0.01 --sigma 2 --clip 1 --rounds 4
    """
    guards.probability(guess, "guess", "bound robustness")
    if mu is not None and sigma is None and clip is None:
        ceiling = _bounds().mu_ceiling(guess, mu, rounds=rounds)
    elif mu is None and sigma is not None and clip is not None:
        ceiling = _bounds().gaussian_ceiling(guess, clip=clip, sigma=sigma, rounds=rounds)
    else:
        raise DomainError(
            "the noise must be given exactly once", where="bound robustness", remedy="give --mu, or --sigma and --clip"
        )
    rows = {
        "ceiling on success": ceiling.value,
        "best guess": ceiling.guess,
        "bound": ceiling.bound,
        "compared with": ceiling.reference,
        "rounds": ceiling.rounds,
    }
    _print("robustness", rows, {**vars(ceiling), "bound": "robustness", "formula": ceiling.bound}, as_json)


@app.command()
def protection(
    expression: Annotated[str, typer.Argument(help="A defense: 'clip(norm=1.0) | gaussian(std=0.1)'.")],
    dim: Dim,
    layers: Annotated[Optional[str], typer.Option(help="Entries of each layer, for per='layer': 10,20.")] = None,  # noqa: UP045
    batch: Annotated[int, typer.Option(help="L, the number of examples per update.")] = 1,
    rounds: Rounds = 1,
    delta: Annotated[Optional[float], typer.Option(help="δ of the requested ε, in (0, 1).")] = None,  # noqa: UP045
    guess: OptionalGuess = None,
    grant: Annotated[Optional[list[str]], typer.Option(help="A nuisance that the adversary knows.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Capacity, ε and ceiling of a whole protection, or the reason why there is none."""
    from leakgauge.defenses import protection as read

    sizes = {f"{i}.": n for i, n in enumerate(_dimensions(layers))} if layers is not None else dim
    if isinstance(sizes, dict) and sum(sizes.values()) != dim:
        raise DomainError(
            f"layers must have {dim} entries in all, got {sum(sizes.values())}",
            where="bound protection",
            remedy="make --layers add up to --dim",
        )
    options: Any = {"batch": batch, "rounds": rounds, "delta": delta, "guess": guess, "grants": grant or ()}
    proof = _bounds().bound_of(read(expression), sizes, **options)
    rows: dict[str, Any] = {"protection": proof.protection, "protects": proof.unit or "nothing is proven"}
    figures = {"log capacity": proof.log_capacity, "ε": proof.epsilon, "ceiling on success": proof.ceiling}
    for name, figure in figures.items():
        rows[name] = "none" if figure.value is None else figure.value
        rows[f"{name}, in words"] = figure.sentence
    assumed = dict.fromkeys(a for figure in figures.values() for a in figure.assumptions)
    rows["assumes"] = "; ".join(assumed) or "nothing"
    _print("protection", rows, {"bound": "protection", **asdict(proof)}, as_json)


@app.command()
def corridor(
    hits: Annotated[int, typer.Option(help="Records reconstructed within the threshold.")],
    trials: Annotated[int, typer.Option(help="Records attacked.")],
    ceiling: Annotated[float, typer.Option(help="The bound on P(success).")],
    confidence: Annotated[float, typer.Option(help="Confidence of each one-sided limit.")] = 0.99,
    as_json: AsJson = False,
) -> None:
    """Compare a measured attack with a ceiling: open, tight, or a contradiction (exit code 5)."""
    result = _bounds().corridor(hits, trials, ceiling, confidence=confidence)
    rows = {
        "state": result.state,
        "success, 1 − R(f)": result.success,
        "limits": f"{result.low:.6g} to {result.high:.6g}",
        "adversarial risk R(f)": result.risk,
        "ceiling": result.ceiling,
        "says": result.sentence,
    }
    _print("corridor", rows, {"bound": "corridor", **asdict(result), "risk": result.risk}, as_json)
    if result.state == "contradiction":
        raise typer.Exit(ExitCode.CONTRADICTION)


@app.command()
def channel(
    rows: Annotated[str, typer.Argument(help="p(y | x), a row per secret: '0.9,0.1;0.2,0.8'.")],
    prior: Annotated[Optional[str], typer.Option(help="Probabilities of the secrets; default: uniform.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Bayes capacity of a discrete channel, and the success of guessing its secret exactly."""
    matrix = [_numbers(row) for row in rows.split(";")]
    channel_matrix = _bounds().Channel(matrix) if len({len(row) for row in matrix}) == 1 else None
    if channel_matrix is None:
        raise DomainError("the rows have different lengths", where="bound channel", remedy="write 0.9,0.1;0.2,0.8")
    n = len(matrix)
    pi = [1 / n] * n if prior is None else _numbers(prior)
    gain = [[float(i == j) for j in range(n)] for i in range(n)]
    values = {
        "capacity": channel_matrix.capacity,
        "success without observation": _bounds().prior_vulnerability(pi, gain),
        "success with it": _bounds().posterior_vulnerability(pi, gain, channel_matrix),
        "leakage": _bounds().leakage(pi, gain, channel_matrix),
    }
    _print("channel", values, {"bound": "channel", **values}, as_json)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise DomainError(
            f"probabilities must be comma-separated numbers, got {text!r}",
            where="bound channel",
            remedy="write 0.9,0.1;0.2,0.8",
        ) from None


def _dimensions(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise DomainError(
            f"layers must be comma-separated integers, got {text!r}",
            where="bound gaussian",
            remedy="write 10,20,30",
        ) from None


def _capacities(
    bound: str,
    inputs: dict[str, Any],
    logs: dict[str, float],
    rounds: int,
    as_json: bool,
    extra: dict[str, float] | None = None,
) -> None:
    totals = {name: _bounds().repeat(max(value, 0.0), rounds) for name, value in logs.items()}
    rows: dict[str, Any] = {}
    for name, value in totals.items():
        rows[f"log capacity, {LABELS[name]}"] = value
        rows[f"capacity, {LABELS[name]}"] = _exp(value)
    rows |= {"rounds (composed)": rounds, **{LABELS[name]: value for name, value in (extra or {}).items()}}
    data = {
        "bound": bound,
        "inputs": {**inputs, "rounds": rounds},
        "log_capacity": totals,
        "capacity": {name: _exp(value) if value < 709 else None for name, value in totals.items()},
        **(extra or {}),
    }
    _print(bound, rows, data, as_json)


def _exp(value: float) -> float:
    return math.exp(value) if value < 709 else math.inf


def _privacy(privacy: Privacy, as_json: bool) -> None:
    rows = {**vars(privacy), "says": str(privacy)}
    _print("privacy", rows, {"bound": "privacy", **vars(privacy)}, as_json)


def _print(title: str, rows: dict[str, Any], data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        echo(json.dumps(data, ensure_ascii=False, allow_nan=False))
        return
    table = Table(title=title, show_header=False)
    for name, value in rows.items():
        cell = "exceeds float64; see the log" if value == math.inf else value
        table.add_row(Text(name), Text(f"{cell:.12g}" if isinstance(cell, float) else str(cell)))
    Console().print(table)
