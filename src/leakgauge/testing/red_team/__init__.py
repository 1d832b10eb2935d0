"""A red team in the box: clients of which it is known whether they leak, and what leakgauge says of each.

``python -m leakgauge.testing.red_team`` runs all and prints a table of right, wrong-safe, wrong-alarm and unclear
answers. Give :func:`answered` a :class:`Case` of your own to add one.
"""

from leakgauge.testing.red_team.cases import WORTHS, Answer, Case, Worth, answered, counted, worth

__all__ = ["WORTHS", "Answer", "Case", "Worth", "answered", "counted", "every", "worth"]


def every() -> list[Case]:
    """All cases of the kit."""
    from leakgauge.testing.red_team import audits, captures, from_the_docs

    return [*audits.cases(), *captures.cases(), *from_the_docs.cases()]
