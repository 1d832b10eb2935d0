"""Sentences that every format of the report shares (words of a verdict: :mod:`leakgauge.audit.judge.words`)."""

from __future__ import annotations

ENCODINGS = (
    "These defenses let the client train on encodings of its records: transformed records, or mixtures of several. So "
    "there are two scores: against the record itself, and against its encoding. A recovered encoding is a leak even if "
    "it could not be undone here: a transformed record shows its original, and counts as recognisable; a mixture "
    "counts as detectable, and is only as safe as the secret of how it was mixed."
)
REACHED = (
    "every record that reaches the threshold counts here, even if a null comes as close, so there may be more than the "
    "verdict counts"
)
COLUMNS = (
    "How often each feature was right in the best reconstructions, and in brackets how often in the best nulls: "
    "numbers within {tolerance:g} standard deviations, categories exactly"
)
TREATMENTS = "What was hidden, and what the adversaries did about it"
