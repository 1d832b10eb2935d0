"""One seed function: whatever is drawn at random is seeded by the integers that name it."""

from __future__ import annotations

_ALL = 2**64 - 1


def seed_of(*key: int) -> int:
    """One well-mixed 63-bit seed from several integers (splitmix64), so that nearby keys share nothing."""
    state = 0
    for part in key:
        state = (state ^ (part & _ALL)) + 0x9E3779B97F4A7C15 & _ALL
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _ALL
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _ALL
        state ^= state >> 31
    return state >> 1
