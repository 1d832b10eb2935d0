"""How many examples a law is tried on: as many as the profile allows."""

from __future__ import annotations

from hypothesis import settings

MANY = 500
"""Examples per law in the profile ``many``, which runs every law on as many as it asks for (``make test-all``)."""


def examples(most: int) -> settings:
    """``most`` examples with the profile ``many``, a fifth of them by default, and fewer with the profile ``few``."""
    return settings(max_examples=max(1, most * settings.default.max_examples // MANY))  # type: ignore[union-attr]
