"""What `leakgauge claims` says of faults that are really there, and NVFlare's filters in its simulator."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from evidence import Context, Measurement, Number, above, check, exactly
from leakgauge.claims import Asked, Claims, examine_expression, examine_folder
from leakgauge.claims.probes import Outcome, flower, nvflare, opacus, secagg
from leakgauge.storage.states import read_state

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "nvflare"
FLIP = "LocalDpMod(clipping_norm=1.0, sensitivity=1e-4, epsilon=10.0, delta=1e-5)"
RIGHT = "LocalDpMod(clipping_norm=1.0, sensitivity=2.0, epsilon=0.9, delta=1e-5)"
APP = f"""\
import numpy as np
from flwr.app import MetricRecord
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp.strategy import DifferentialPrivacyServerSideAdaptiveClipping, FedAvg
from torch import nn

np.random.seed(0)
model = nn.BatchNorm1d(4)
app = ClientApp(mods=[{FLIP}])
strategy = DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 1.0, 10)


@app.train()
def fit(message, context):
    strategy.start(num_rounds=3)
    return MetricRecord({{"num-examples": len(message)}})


@app.evaluate()
def test(message, context): ...
"""

FAULTS: dict[str, tuple[Callable[[], Outcome], str, str]] = {
    "classical formula": (lambda: flower.local_noise(1.0, 1e-4, 10.0, 1e-5), "app", "formula"),
    "0-d parameters": (lambda: flower.scalars_at_client("LocalDpMod"), "app", "scalars"),
    "0-d parameters at the server": (flower.scalars_at_server, "app", "scalars"),
    "adaptive clipping": (flower.adaptive_direction, "app", "adaptive clipping"),
    "equal weights": (flower.weighted_noise, "app", "weights"),
    "global generator": (flower.global_noise, "app", "generator"),
    "evaluation": (lambda: flower.evaluation("LocalDpMod"), "app", "evaluation"),
    "SecAgg+ seeds": (secagg.mask_bits, "secaggplus_mod()", "mask seeds"),
    "SecAgg+ counts": (secagg.counts_in_clear, "secaggplus_mod()", "counts"),
    "PercentilePrivacy raw": (lambda: nvflare.percentile_raw(10, -1.0), "PercentilePrivacy(gamma=-1.0)", "raw data"),
    "SVTPrivacy": (lambda: nvflare.svt_release(0.1, 1e-5), "SVTPrivacy()", "release"),
    "Opacus without sampling": (
        opacus.sampling_counted,
        "make_private(noise_multiplier=1.0, max_grad_norm=1.0, poisson_sampling=False)",
        "sampling",
    ),
}
"""Fault → its probe, what is examined, and the finding that must call it out."""


def _broken(claims: Claims) -> set[str]:
    return {finding.rule for finding in claims.of("broken")}


@check("claims", rows="claims", cost="fast")
def claims(context: Context) -> Measurement:
    """Every known fault: is it in the installed package, and is it called out; a correct setting beside them."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "app.py").write_text(APP)
        app = examine_folder(Path(folder))
    outcomes = {name: run() for name, (run, _, _) in FAULTS.items()}
    there = [name for name, outcome in outcomes.items() if outcome.faulty]
    called = [
        name
        for name in there
        if FAULTS[name][2] in _broken(app if FAULTS[name][1] == "app" else examine_expression(FAULTS[name][1]))
    ]
    context.say(f"not called out: {sorted(set(there) - set(called))}")
    (flip,) = [f for f in examine_expression(FLIP).of("broken") if f.rule == "sensitivity"]
    right = examine_expression(RIGHT, Asked(rounds=1))
    notes = sorted({outcome.note for outcome in outcomes.values()})
    return Measurement(
        {
            "faults that could not be tried": Number(sum(o.faulty is None for o in outcomes.values()), exactly(0)),
            "faults in the installed packages": Number(len(there)),
            "of them called out": Number(len(called), exactly(len(there))),
            "rounds are composed (claims broken)": Number(float("composition" in _broken(app)), exactly(1)),
            "clip 1, sensitivity 1e-4, ε = 10: real μ": Number(flip.numbers["mu"], above(20_000)),
            "a correct setting: broken claims": Number(len(right.of("broken")), exactly(0)),
        },
        detail="; ".join(notes),
    )


def job(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The example's job in NVFlare's simulator."""
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, str(EXAMPLE / "job.py"), str(folder / "captures"), "--work", str(folder / "work")]
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=600, cwd=EXAMPLE, check=False
    )


@check(
    "nvflare",
    rows="nvflare",
    cost="minutes",
    uses=(
        *(f"examples/nvflare/{name}.py" for name in ("job", "client", "clinic_net")),
        *(f"leakgauge.integrations.nvflare.{name}" for name in ("capture", "gate", "remember")),
    ),
)
def nvflare_filters() -> Measurement:
    """The example in NVFlare's simulator: what its filters capture, and what a gate lets out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, gated = job(folder / "plain"), job(folder / "gated", "--gate")
        files = [read_state(path) for path in (folder / "plain" / "captures").rglob("*client*.safetensors")]
        sent = list((folder / "gated" / "captures").rglob("*client*.safetensors"))
        psnr = _least_psnr(folder / "plain" / "captures") if files else float("nan")
    text = gated.stdout + gated.stderr
    return Measurement(
        {
            "exit code of the plain job": Number(plain.returncode, exactly(0)),
            "sites captured": Number(len({state.fact("client") for state in files}), exactly(2)),
            "least PSNR dB of a record": Number(psnr, above(20)),
            "gated results that left": Number(len(sent), exactly(0)),
            "results replaced by an error": Number(float("TASK_RESULT_FILTER_ERROR" in text), exactly(1)),
        },
        detail="2 sites, one step on one image each; the capture stands behind the gate",
    )


def _least_psnr(folder: Path) -> float:
    import torch

    from evidence.checks.flower import module_at
    from leakgauge.inspect import folder_of, inspect
    from leakgauge.types import Records

    clinic = module_at("clinic_net", EXAMPLE / "clinic_net.py")
    own = [clinic.records_of(f"site-{k}") for k in (1, 2)]
    known = Records(torch.cat([r.inputs for r in own]), torch.cat([r.labels for r in own]), own[0].domain)
    findings = inspect(clinic.build(), known.domain, folder_of(folder, clinic.build()), known=known, draws=3)
    return min(max(column) for column in zip(*(finding.psnr for finding in findings), strict=True))
