"""The catalogue: examples of every registered part, which feed the laws.

A part that is registered without an example fails ``tests/testing/test_catalogue.py``; one row here puts it through
every law of its kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leakgauge import adversary, attacks, claims, defenses, fl, losses, metrics
from leakgauge.defenses import UpdatePart
from leakgauge.errors import ModelError, NoDensityError
from leakgauge.expr import parse
from leakgauge.testing.samples import Entries

TINY_PRIOR = f"learned(file={str(Path(__file__).with_name('tiny_prior.safetensors'))!r})"
"""A generator of pictures of 8 × 8 pixels from two codes, hardly trained: for tests."""
EXAMPLES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "defense": {
        "identity": ("identity()",),
        "clip": ("clip(norm=1.0)", "clip(norm=0.5, per='layer')", "clip(norm=0.5, per='example')"),
        "gaussian": ("gaussian(std=0.3)",),
        "laplace": ("laplace(scale=0.2)",),
        "random_prune": ("random_prune(p=0.4)",),
        "prune": ("prune(p=0.6)",),
        "sign": ("sign()",),
        "quantise": ("quantise()", "quantise(levels=4)"),
        "topk": ("topk(keep=0.4)", "topk(keep=0.4, per='tensor')"),
        "soteria": ("soteria(layer='first')", "soteria(layer='first', p=0.5, epsilon=0.0, features='live')"),
        "vmf": ("vmf(kappa=3.0)",),
        "ats": ("ats()", "ats(policy='7-4-15')"),
        "instahide": ("instahide()", "instahide(k=6, law='normal')", "instahide(public='fashion_mnist_sample')"),
        "mixup": ("mixup()", "mixup(k=6, cap=0.5, law='normal')"),
        "lrp": ("lrp()", "lrp(share=2.0, spread=0.5)"),
        "ada_lrp": ("ada_lrp()", "ada_lrp(zeta=0.1, classes=3, mean_classes=4.5)"),
        "precode": ("precode()", "precode(k=8, form='bayes', uniform=0.05)"),
    },
    "likelihood": {
        "l2": ("l2()", "l2(weights='exponential')", "l2(relative=True)"),
        "l1": ("l1()",),
        "cosine": ("cosine()", "cosine(weights={'last': 3.0})", "cosine(drop=('last.bias',))"),
        "scaled_l2": ("scaled_l2()", "scaled_l2(relative=True)"),
        "density": ("density()", "density(assumed=laplace(scale=0.2))"),
        "marginal": ("marginal()", "marginal(std=0.1)"),
        "estimated": ("estimated()", "estimated(clip=False)"),
        "forgiving": ("forgiving()", "forgiving(share=0.2)"),
        "through": ("through()", "through(likelihood=cosine())"),
    },
    "solver": {
        "adam": ("adam()", "adam(lr=0.05, steps=10, schedule=warmup(length=5)*cosine_decay(floor=0.1))"),
        "signed_adam": ("signed_adam()", "signed_adam(sign='soft', langevin=0.01, patience=50, target=1e-06)"),
        "cma": ("cma()", "cma(sigma=0.5, steps=10, population=8)"),
        "momentum": ("momentum()", "momentum(box=False, beta=0.0)"),
        "gauss_newton": ("gauss_newton()", "gauss_newton(steps=5, inner=10)"),
        "lbfgs": ("lbfgs()", "lbfgs(steps=20, history=5, wolfe=(0.001, 0.4))"),
    },
    "schedule": {
        "constant": ("constant()",),
        "step_decay": ("step_decay()", "step_decay(factor=0.5, at=(0.5,))"),
        "cosine_decay": ("cosine_decay()", "cosine_decay(floor=0.1)"),
        "exponential": ("exponential(rate=0.9)",),
        "warmup": ("warmup(length=3)", "warmup(length=3)*exponential(rate=0.9)"),
        "ramp": ("ramp(start=0.01, length=5)",),
    },
    "partition": {
        "iid": ("iid()", "iid(clients=4)"),
        "shards": ("shards()", "shards(clients=4, size=5, most=3)"),
        "mcmahan": ("mcmahan()", "mcmahan(clients=4, shards=3)"),
        "dirichlet": ("dirichlet()", "dirichlet(clients=4, alpha=0.1, least=2)"),
    },
    "loss": {
        "cross_entropy": ("cross_entropy()", "cross_entropy(smoothing=0.1)"),
        "squared_error": ("squared_error()",),
    },
    "metric": {
        "digits": ("digits()",),
        "feature_share": ("feature_share()", "feature_share(tolerance=0.05)"),
        "lpips": ("lpips()", "lpips(net='vgg')"),
        "ms_ssim": ("ms_ssim()", "ms_ssim(scales=2)"),
        "mse": ("mse()",),
        "psnr": ("psnr()",),
        "representation_mse": ("representation_mse()",),
        "row_error": ("row_error()",),
        "ssim": ("ssim()",),
        "token_share": ("token_share()",),
    },
    "setting": {
        "LocalDpMod": ("LocalDpMod(clipping_norm=1.0, sensitivity=2.0, epsilon=0.9, delta=1e-05)",),
        "DifferentialPrivacyServerSideFixedClipping": (
            "DifferentialPrivacyServerSideFixedClipping(noise_multiplier=1.0, num_sampled_clients=9, clipping_norm=1)",
        ),
        "DifferentialPrivacyClientSideFixedClipping": (
            "DifferentialPrivacyClientSideFixedClipping(noise_multiplier=1.0, num_sampled_clients=9, clipping_norm=1)",
        ),
        "DifferentialPrivacyServerSideAdaptiveClipping": (
            "DifferentialPrivacyServerSideAdaptiveClipping(noise_multiplier=1.0, num_sampled_clients=10)",
        ),
        "DifferentialPrivacyClientSideAdaptiveClipping": (
            "DifferentialPrivacyClientSideAdaptiveClipping(noise_multiplier=1.0, num_sampled_clients=10)",
        ),
        "fixedclipping_mod": ("fixedclipping_mod()",),
        "adaptiveclipping_mod": ("adaptiveclipping_mod()",),
        "secagg_mod": ("secagg_mod()",),
        "secaggplus_mod": ("secaggplus_mod()",),
        "SecAggWorkflow": ("SecAggWorkflow(reconstruction_threshold=2)",),
        "SecAggPlusWorkflow": ("SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)",),
        "PercentilePrivacy": ("PercentilePrivacy()", "PercentilePrivacy(percentile=50, gamma=0.1)"),
        "SVTPrivacy": ("SVTPrivacy()", "SVTPrivacy(epsilon=1.0, epsilon_release=2.0)"),
        "ExcludeVars": ("ExcludeVars(exclude_vars='head')",),
        "make_private": ("make_private(noise_multiplier=1.1, max_grad_norm=1.0)",),
        "make_private_with_epsilon": (
            "make_private_with_epsilon(target_epsilon=2.0, target_delta=1e-05, epochs=1, max_grad_norm=1.0)",
        ),
        "Defend": ("Defend(protection='clip(norm=1.0) | gaussian(std=3.0)')",),
    },
    "ball": {"ball": ("ball()", "ball(points=4, delta=0.5)")},
    "adversary": {"adversary": ("adversary()", "adversary(likelihood=l1(), labels='joint', restarts=2)")},
    "attack": {
        "adaptive": ("adaptive()", "adaptive(steps=10, bound='received')"),
        "analytic": ("analytic()", "analytic(how='row')"),
        "best_of": ("best_of(attacks=(adaptive(steps=2), analytic()), judge=adversary())",),
        "exact_recovery": ("exact_recovery()", "exact_recovery(methods='peeling', starts=64)"),
        "bayes": ("bayes()", "bayes(prior=uniform(), ball=ball(points=2, delta=0.1))"),
        "dlg": ("dlg()",),
        "drop_layer": ("drop_layer()", "drop_layer(layer='last', leave='columns', steps=10)"),
        "grad_inversion": ("grad_inversion()", "grad_inversion(steps=10, seeds=2, meetings=1)"),
        "ggl": (f"ggl(prior={TINY_PRIOR})",),
        "gias": (f"gias(prior={TINY_PRIOR})", f"gias(prior={TINY_PRIOR}, steps=10, tune_steps=5)"),
        "idlg": ("idlg(restarts=1)",),
        "inverting_gradients": ("inverting_gradients()", "inverting_gradients(steps=10, lr=0.05)"),
        "raced": ("raced(firsts=(adversary(),), stage=adversary(), judge=adversary(), keep=1)",),
        "staged": ("staged(stages=(adversary(), adversary(likelihood=cosine(), solver=lbfgs(steps=5))))",),
        "standard": ("standard()", "standard(work='quick')"),
    },
}
"""kind → name → expressions. Priors and models keep their tables beside their tests."""

CHAINS: Mapping[str, tuple[str, ...]] = {
    "clip(norm=1.0) | gaussian(std=0.3)": (),
    "clip(norm=0.5, per='layer') | laplace(scale=0.2)": (),
    "clip(norm=1.0) | vmf(kappa=3.0)": (),
    "random_prune(p=0.4) | gaussian(std=0.3)": ("mask",),
    "random_prune(p=0.4) | laplace(scale=0.2)": ("mask",),
    "clip(norm=1.0) | random_prune(p=0.4) | gaussian(std=0.3)": ("mask",),
    "gaussian(std=0.3) | random_prune(p=0.4)": (),
    "gaussian(std=0.3) | random_prune(p=0.4) | random_prune(p=0.3)": (),
    "gaussian(std=0.3) | prune(p=0.6)": ("threshold",),
    "laplace(scale=0.2) | prune(p=0.6)": ("threshold",),
    "gaussian(std=0.3) | topk(keep=0.4)": ("threshold",),
    "gaussian(std=0.3) | sign()": (),
    "random_prune(p=0.4) | laplace(scale=0.2) | sign()": ("mask",),
    "gaussian(std=0.3) | random_prune(p=0.4) | sign()": (),
    "gaussian(std=0.3) | quantise()": ("step",),
    "laplace(scale=0.2) | quantise(levels=4)": ("step",),
    "clip(norm=1.0) | random_prune(p=0.4) | gaussian(std=0.3) | quantise()": ("mask", "step"),
    "gaussian(std=0.3) | random_prune(p=0.4) | quantise(levels=3)": ("step",),
    "quantise(levels=3) | prune(p=0.6)": ("step", "threshold"),
    "gaussian(std=0.3) | quantise(levels=3) | prune(p=0.6)": ("step", "threshold"),
    "gaussian(std=0.3) | prune(p=0.6) | random_prune(p=0.4)": ("threshold",),
    "gaussian(std=0.3) | random_prune(p=0.4) | prune(p=0.6)": ("threshold",),
    "gaussian(std=0.3) | random_prune(p=0.8) | prune(p=0.3)": ("threshold",),
    "random_prune(p=0.4) | laplace(scale=0.2) | prune(p=0.6)": ("mask", "threshold"),
    "clip(norm=1.0) | random_prune(p=0.4) | gaussian(std=0.3) | prune(p=0.6)": ("mask", "threshold"),
}
"""Chains of update-stage parts whose density exists, each with the nuisances that it conditions on when granted."""


def texts_of(*stages: str) -> list[str]:
    """The expressions of the defenses of these stages that the catalogue lists."""
    ours = defenses.of_stage(*stages)
    return [text for name, texts in EXAMPLES["defense"].items() if name in ours for text in texts]


def examples(kind: str) -> list[Any]:
    """The parts of one kind that the catalogue lists, parsed."""
    return [parse(text, kind) for texts in EXAMPLES[kind].values() for text in texts]


def with_density() -> list[tuple[UpdatePart, tuple[str, ...]]]:
    """Every listed update-stage part and chain that has a density, without grants and with all of them."""
    plain = [part for part in map(parse, texts_of("update")) if has_density(part)]
    chained = [(parse(text, "defense"), grants) for text, grants in CHAINS.items()]
    both = [(part, grant) for part, grants in chained for grant in dict.fromkeys([(), grants])]
    return [*((part, ()) for part in plain), *both]


def has_density(part: UpdatePart) -> bool:
    """Whether ``log_density`` answers an adversary to whom nothing is granted."""
    try:
        sample = Entries.draw(part, 0.5, entries=4, seed=0)
        sample.log_density(sample.values)
    except (NoDensityError, ModelError):  # a part that asks for more than the update has none by itself
        return False
    return True


_REGISTERED_BY_IMPORT = (adversary, attacks, claims, defenses, fl, losses, metrics)
