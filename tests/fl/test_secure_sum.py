"""Secure sums: exact, uniform to the server, and refused wherever they would be wrong or tell a client's value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from leakgauge.errors import DomainError
from leakgauge.fl import DroppedError, SecureSumError, SecureSums, Totals, fixed_point, from_fixed_point
from leakgauge.fl.cohorts import Answered
from leakgauge.fl.secure_sum import Identity, Member, Session, total
from leakgauge.testing import small_records

NAMES = ("a", "b", "c", "d")


def sums(names: tuple[str, ...] = NAMES) -> SecureSums:
    return SecureSums(names, "test")


def values(names: tuple[str, ...] = NAMES) -> dict[str, list[int]]:
    return {name: [10 + i, 3 * i] for i, name in enumerate(names)}


def test_sums_are_exact_up_to_the_largest_values() -> None:
    assert sums().attempt(values(), "counts") == [46, 18]
    largest = (2**64 - 1) // 4
    assert sums().attempt({key: [largest] for key in NAMES}, "counts") == [4 * largest]
    with pytest.raises(DomainError, match=r"must add up below 2\^64"):
        sums().attempt({key: [largest + 1] for key in NAMES}, "counts")
    with pytest.raises(DomainError, match="no whole number"):
        sums().attempt({key: [-1] for key in NAMES}, "counts")
    with pytest.raises(SecureSumError, match="1 numbers for a session of 2"):
        sums().attempt({**values(), "d": [1]}, "counts")


def test_what_the_server_sees_of_a_client_is_uniform() -> None:
    """Bytes of the masked zeros of one client; a fair test fails here once in a million."""
    run = sums(NAMES[:3])
    run.attempt(dict.fromkeys(NAMES[:3], [0] * 4096), "zeros")
    for words in run.masked.values():
        counts = np.bincount(np.frombuffer(words.tobytes(), dtype=np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-6
    first = run.masked["a"].copy()
    run.attempt(dict.fromkeys(NAMES[:3], [0] * 4096), "zeros")  # new keys: nothing repeats
    assert not bool((run.masked["a"] == first).any())


def test_a_dropped_client_ends_the_attempt_and_the_next_has_new_keys() -> None:
    run = sums()
    with pytest.raises(DroppedError, match=r"no values from 'c'.*start again without them, with new keys") as dropped:
        run.attempt(values(), "counts", absent=["c"])
    assert dropped.value.clients == ("c",)
    total_of_rest, cohort = sums().sum(values(), "counts", absent=["c"])
    assert (total_of_rest, cohort) == ([34, 12], ("a", "b", "d"))


def test_two_clients_and_doubles_are_refused() -> None:
    with pytest.raises(SecureSumError, match="2 clients: whoever knows one value would learn the other"):
        sums(NAMES[:2]).attempt(values(NAMES[:2]), "counts")
    with pytest.raises(SecureSumError, match="'a' is there twice"):
        Session("run", "counts", ("a", "a", "b"))
    with pytest.raises(DomainError, match="cannot add up their counts in secret"):
        Totals.secure([small_records(2)] * 2)


def session_of(run: SecureSums) -> Session:
    return Session("test", "counts", tuple(run.names), 2)


def test_wrong_keys_swapped_ids_and_replays_are_refused() -> None:
    run = sums()
    session = session_of(run)
    announced = [run.members[name].announce(session) for name in NAMES]
    stranger = Member(Identity.new("b"), run.directory)
    forged = [announced[0], stranger.announce(session), *announced[2:]]
    with pytest.raises(SecureSumError, match="the key of 'b' are not signed by 'b'"):
        run.members["a"].mask(session, forged, [1, 2])
    run.members["a"].announce(session)  # its first key is spent; the server still hands out the old one
    with pytest.raises(SecureSumError, match="another key in its name"):
        run.members["a"].mask(session, announced, [1, 2])
    swapped = [replace(announced[0], name="b"), replace(announced[1], name="a"), *announced[2:]]
    with pytest.raises(SecureSumError, match="are not signed by"):
        run.members["c"].mask(session, swapped, [1, 2])
    run.members["d"].mask(session, announced, [1, 2])
    with pytest.raises(SecureSumError, match="no unused key"):
        run.members["d"].mask(session, announced, [5, 6])  # two values under one mask would tell their difference


def test_the_server_notices_exchanged_values() -> None:
    run = sums()
    session = session_of(run)
    announced = [run.members[name].announce(session) for name in NAMES]
    masked = [run.members[name].mask(session, announced, [1, 2]) for name in NAMES]
    assert total(session, masked, run.directory) == [4, 8]
    swapped = [replace(masked[0], values=masked[1].values), *masked[1:]]
    with pytest.raises(SecureSumError, match="the values of 'a' are not signed"):
        total(session, swapped, run.directory)
    with pytest.raises(SecureSumError, match="answered twice"):
        total(session, [*masked, masked[0]], run.directory)
    with pytest.raises(SecureSumError, match="not signed"):
        total(replace(session, attempt=1), masked, run.directory)


def test_a_cohort_that_differs_by_one_client_is_refused_by_its_members() -> None:
    run = sums()
    run.attempt(values(), "counts")
    fewer = {name: own for name, own in values().items() if name != "d"}
    with pytest.raises(SecureSumError, match="differs by 'd' alone from one whose sum is known"):
        run.attempt(fewer, "counts")
    assert run.attempt(fewer, "something else") == [33, 9]
    assert run.attempt(values(), "counts") == [46, 18]  # the same sum once more tells nothing new


def test_cohorts_that_give_a_value_away_together_are_refused() -> None:
    answered = Answered()
    for cohort in ("abc", "def"):
        answered.check("n", cohort, where="x")
        answered.add("n", cohort)
    answered.check("n", "abcdefgh", where="x")
    with pytest.raises(SecureSumError, match="would give away the value of 'g'"):
        answered.check("n", "abcdefg", where="x")
    triangle = Answered()
    for cohort in ("abc", "cde"):
        triangle.add("n", cohort)
    with pytest.raises(SecureSumError, match="would give away the value of 'c'"):
        triangle.check("n", "abde", where="x")  # abc + cde − abde = 2 c


def test_updates_are_summed_in_fixed_point() -> None:
    generator = torch.Generator().manual_seed(0)
    trees = [{"w": torch.randn(3, 4, generator=generator), "b": torch.randn(2, generator=generator)} for _ in range(5)]
    weights = [1.0, 2.5, 0.5, 4.0, 2.0]
    names = tuple("abcde")
    encoded = {n: fixed_point(t, 5, weight=w) for n, t, w in zip(names, trees, weights, strict=True)}
    mean = from_fixed_point(sums(names).attempt(encoded, "update 0"), trees[0])
    for name in ("w", "b"):
        exact = sum(w * t[name].double() for w, t in zip(weights, trees, strict=True)) / sum(weights)
        # each of five entries and weights is rounded by half a unit of 2⁻³²
        torch.testing.assert_close(mean[name], exact, rtol=0, atol=5 * 2.0**-32)
    with pytest.raises(DomainError, match="could overflow"):
        fixed_point({"w": torch.tensor([1e9])}, 5)
    with pytest.raises(DomainError, match="not finite"):
        fixed_point({"w": torch.tensor([torch.nan])}, 5)


def test_totals_by_secure_sum_are_those_in_clear() -> None:
    clients = [small_records(2, seed=1), small_records(5, seed=2), small_records(3, seed=3)]
    assert Totals.secure(clients) == Totals.in_clear(clients)
    assert Totals.in_clear(clients).share(clients[1]) == pytest.approx(1.5)
