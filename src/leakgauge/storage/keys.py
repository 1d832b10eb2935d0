"""The user's secret for redacted runs: what is hashed with it cannot be compared with a guess by anybody else."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from leakgauge.storage.cache import cache_folder

NAME = "redaction.key"


def redaction_key() -> str:
    """A secret of this user, made once and kept in the cache folder (mode 0600), never in a run folder.

    The names of cells are hashes over records. Without a secret, whoever knows all records but one could try
    candidates for the last until a name agrees. Where the cache folder cannot be written the secret lives as long as
    this call: the run is redacted all the same, but a second command computes its cells again.
    """
    path = cache_folder() / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _stored(path) or _created(path)
    except OSError:
        return secrets.token_hex(32)


def _stored(path: Path) -> str:
    """The secret of the file; empty if there is none, or if it was cut short."""
    text = path.read_text(encoding="ascii", errors="replace").strip() if path.is_file() else ""
    return text if len(text) == 64 else ""


def _created(path: Path) -> str:
    """A new secret, there whole or not at all; of two processes that make one at once both get the same."""
    own = path.with_name(f".{NAME}.{secrets.token_hex(8)}")
    handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(32))
    try:
        if path.exists() and not _stored(path):
            path.unlink()
        os.link(own, path)
    except FileExistsError:
        pass
    finally:
        own.unlink()
    return _stored(path)
