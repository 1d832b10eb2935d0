"""Which cohorts may be summed after others: two sums of the same values can be subtracted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from leakgauge.fl.errors import SecureSumError

Row = dict[str, Fraction]
"""A combination of clients' values: client → coefficient."""


@dataclass(repr=False)
class Answered:
    """The cohorts whose sums are known, by what was summed.

    A new cohort is refused if a combination of its sum with known ones is a single client's value: the plainest case
    is a cohort that differs from a known one by one client, but ``{1,2,3} + {4,5,6} − {1,…,7}`` tells as much. Sums
    are rows of a matrix over the rationals; in its reduced form, a client's value is known where a row names
    that client alone.
    """

    _reduced: dict[Hashable, list[Row]] = field(default_factory=dict)
    _cohorts: dict[Hashable, list[frozenset[str]]] = field(default_factory=dict)

    def check(self, about: Hashable, cohort: Sequence[str], *, where: str) -> None:
        """Refuse a cohort that would give a client's value away."""
        for known in self._cohorts.get(about, []):
            if len(apart := known ^ set(cohort)) == 1:
                raise SecureSumError(
                    f"the cohort differs by {next(iter(apart))!r} alone from one whose sum is known",
                    where=where,
                    remedy="sum over a cohort that differs by at least two clients, or over the same one",
                )
        lone = next((row for row in self._with(about, cohort) if len(row) == 1), None)
        if lone is not None:
            raise SecureSumError(
                f"with the sums that are known, this one would give away the value of {next(iter(lone))!r}",
                where=where,
                remedy="sum over another cohort",
            )

    def add(self, about: Hashable, cohort: Sequence[str]) -> None:
        """The sum over this cohort is known from now on."""
        self._reduced[about] = self._with(about, cohort)
        self._cohorts.setdefault(about, []).append(frozenset(cohort))

    def _with(self, about: Hashable, cohort: Sequence[str]) -> list[Row]:
        """The reduced matrix with one more row (Gauss and Jordan)."""
        rows = self._reduced.get(about, [])
        row: Row = dict.fromkeys(cohort, Fraction(1))
        for known in rows:
            row = _less(row, known, _pivot(known))
        if not row:
            return rows
        lead = _pivot(row)
        row = {name: value / row[lead] for name, value in row.items()}
        return [*(_less(known, row, lead) for known in rows), row]


def _pivot(row: Row) -> str:
    return min(row)


def _less(row: Row, other: Row, column: str) -> Row:
    """``row`` less the multiple of ``other`` that clears a column in which ``other`` holds 1."""
    factor = row.get(column)
    if factor is None:
        return row
    names = row.keys() | other.keys()
    changed = {name: row.get(name, Fraction(0)) - factor * other.get(name, Fraction(0)) for name in names}
    return {name: value for name, value in changed.items() if value}
