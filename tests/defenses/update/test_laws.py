"""The laws of every registered update-stage part, fed by the registry through the catalogue."""

from __future__ import annotations

import pytest

from leakgauge.defenses import Chain, UpdatePart, of_stage, parts_of
from leakgauge.expr import parse
from leakgauge.testing import (
    CHAINS,
    gradient_matches_finite_differences,
    has_density,
    neutral_is_identity,
    probabilities_sum_to_one,
    promises_are_kept,
    release_is_pure,
    repr_round_trips,
    sampler_agrees_with_density,
    texts_of,
    with_density,
)

SINGLE = texts_of("update")
EVERY = [*SINGLE, *CHAINS]
DENSITIES = [
    # roundings inside longer chains are sums over levels, and dear; `make test-all` and the evidence have them
    pytest.param(
        part,
        grant,
        id=f"{part!r}{list(grant) or ''}",
        marks=pytest.mark.slow if "quantise" in repr(part) and len(parts_of(part)) > 2 else (),
    )
    for part, grant in with_density()
]
# a clipped entry depends on how many there are, so that its density must be asked for all of them at once
ENTRIES = {True: 2_000, False: 10_000}


def test_every_noise_has_a_density_and_nothing_else_alone_has_one() -> None:
    alone = {text for text in SINGLE if has_density(parse(text))}
    assert alone == {"gaussian(std=0.3)", "laplace(scale=0.2)", "vmf(kappa=3.0)", "quantise()", "quantise(levels=4)"}
    assert all(has_density(parse(text)) for text in CHAINS)


@pytest.mark.parametrize(("part", "grant"), DENSITIES)
def test_sampler_agrees_with_density(part: UpdatePart, grant: tuple[str, ...]) -> None:
    clipped = "clip" in repr(part)
    p = sampler_agrees_with_density(part, grant=grant, draws=600, entries=ENTRIES[clipped])
    assert 0 < p <= 1


@pytest.mark.parametrize(("part", "grant"), DENSITIES)
def test_probabilities_sum_to_one(part: UpdatePart, grant: tuple[str, ...]) -> None:
    assert probabilities_sum_to_one(part, grant=grant, entries=200) < 1e-4


@pytest.mark.parametrize(("part", "grant"), DENSITIES)
def test_gradient_matches_finite_differences(part: UpdatePart, grant: tuple[str, ...]) -> None:
    for seed in range(2):
        gradient_matches_finite_differences(part, grant=grant, seed=seed)


@pytest.mark.parametrize("text", EVERY)
def test_release_is_pure(text: str) -> None:
    release_is_pure(parse(text))


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=[pytest.mark.slow] * text.startswith("vmf")) for text in SINGLE]
)
def test_promises_are_kept(text: str) -> None:
    promises_are_kept(parse(text))


@pytest.mark.parametrize("text", EVERY)
def test_repr_round_trips(text: str) -> None:
    assert repr(parse(text)) == text
    repr_round_trips(parse(text))


@pytest.mark.parametrize("name", sorted(of_stage("update")))
def test_neutral_is_identity(name: str) -> None:
    made = of_stage("update")[name]
    assert issubclass(made, UpdatePart)
    # the norm never leaves a sphere, and neither do magnitudes a rounding
    assert neutral_is_identity(made) == (name not in ("vmf", "sign", "quantise"))


@pytest.mark.parametrize(
    "text",
    [text for text in SINGLE if not has_density(parse(text)) and parse(text).neutral() is not None],
)
def test_a_neutral_part_before_or_after_the_noise_changes_no_density(text: str) -> None:
    neutral, noise = parse(text).neutral(), parse("gaussian(std=0.3)")
    for part in (Chain((neutral, noise)), Chain((noise, neutral))):
        sampler_agrees_with_density(part, draws=300, entries=5_000)
        probabilities_sum_to_one(part, entries=200)


def test_a_chain_of_chains_is_flat() -> None:
    a, b, c = (parse(text) for text in ("clip(norm=1.0)", "gaussian(std=0.1)", "random_prune(p=0.5)"))
    assert (a | b) | c == a | (b | c) == Chain((a, b, c))
    assert parts_of(a | b | c) == (a, b, c)
    assert parts_of(a) == (a,)
