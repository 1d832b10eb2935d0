"""The laws, for our tests and for anyone who writes a new part.

Plain functions that raise :class:`AssertionError` with what is wrong, to be called from any test::

    from leakgauge.testing import sampler_agrees_with_density, probabilities_sum_to_one

    def test_my_mechanism() -> None:
        sampler_agrees_with_density(my_mechanism(scale=0.3))
        probabilities_sum_to_one(my_mechanism(scale=0.3))

=================================== ==========================================================================
an update-stage part                ``sampler_agrees_with_density``, ``probabilities_sum_to_one``,
                                    ``gradient_matches_finite_differences``, ``neutral_is_identity``,
                                    ``release_is_pure``, ``promises_are_kept``
any part                            ``repr_round_trips``
an entrywise function with a slope  ``slope_matches_autograd``
a metric                            ``metric_laws``
a prior, a likelihood, a solver     ``prior_laws``, ``likelihood_laws``, ``attack_reaches_map``
a defense with nuisances            ``grants_law``, ``hiding_law``, ``hidden_rate_law``, ``worth_of_grants``
an attack that models defenses      ``invariance_law``, ``worth_of_bijection``
anything that is given a model      ``task_is_untouched``
=================================== ==========================================================================

``EXAMPLES`` and ``CHAINS`` are the catalogue that puts our own parts through them.
"""

from leakgauge.testing.adversaries import attack_reaches_map, likelihood_laws, prior_laws
from leakgauge.testing.catalogue import CHAINS, EXAMPLES, examples, has_density, texts_of, with_density
from leakgauge.testing.clients import LinearClient, image_records, image_task, small_records, small_task
from leakgauge.testing.densities import (
    gradient_matches_finite_differences,
    probabilities_sum_to_one,
    sampler_agrees_with_density,
    slope_matches_autograd,
)
from leakgauge.testing.grants import capped_psnr, folded_psnr, grants_law, hidden_rate_law, hiding_law, worth_of_grants
from leakgauge.testing.invariance import BIJECTIONS, invariance_law, worth_of_bijection
from leakgauge.testing.metrics import metric_laws
from leakgauge.testing.parts import (
    example_update,
    neutral_is_identity,
    release_is_pure,
    repr_round_trips,
    task_is_untouched,
)
from leakgauge.testing.promises import promises_are_kept

__all__ = [
    "BIJECTIONS",
    "CHAINS",
    "EXAMPLES",
    "LinearClient",
    "attack_reaches_map",
    "capped_psnr",
    "example_update",
    "examples",
    "folded_psnr",
    "gradient_matches_finite_differences",
    "grants_law",
    "has_density",
    "hidden_rate_law",
    "hiding_law",
    "image_records",
    "image_task",
    "invariance_law",
    "likelihood_laws",
    "metric_laws",
    "neutral_is_identity",
    "prior_laws",
    "probabilities_sum_to_one",
    "promises_are_kept",
    "release_is_pure",
    "repr_round_trips",
    "sampler_agrees_with_density",
    "slope_matches_autograd",
    "small_records",
    "small_task",
    "task_is_untouched",
    "texts_of",
    "with_density",
    "worth_of_bijection",
    "worth_of_grants",
]
