"""Signatures of files beside each other: Ed25519 over the SHA-256 of each.

``signature.json`` lists the files with their hashes and holds one signature over that list. A signature says who signed
these bytes, not that they are true; and it is worth as much as the way by which the public key came.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.errors import LeakgaugeError, need
from leakgauge.storage.private import write

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FILE = "signature.json"
_CONTEXT = b"leakgauge signature 1\n"
"""Comes before what is signed, so that a signature for something else is none for this."""
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_MOST = 1 << 20
"""Bytes of a key or of ``signature.json``: both are small."""


class SignatureError(LeakgaugeError):
    """A key that cannot be used, or files that are not what was signed."""


def new_key(path: Path) -> Path:
    """Write a new private key (PEM, mode 0600), and its public key beside it as ``<path>.pub``, which is returned."""
    _cryptography()
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        if os.path.lexists(file):
            raise SignatureError("already exists", where=str(file), remedy="give another name; a key is never replaced")
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    shared = key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    try:
        write(path, secret)
        write(public, shared)
    except OSError as fault:
        remedy = "give a path in a folder that you can write to"
        raise SignatureError(f"cannot be written ({fault.strerror})", where=str(path), remedy=remedy) from None
    return public


def private_key(path: Path) -> Ed25519PrivateKey:
    """The private key in a PEM file."""
    _cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content = _content(path)
    try:
        key = load_pem_private_key(content, password=None)
    except TypeError:
        raise SignatureError("is encrypted", where=str(path), remedy="give it without a passphrase") from None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise SignatureError(
            "is not a private Ed25519 key in PEM", where=str(path), remedy="make one: leakgauge key new NAME"
        )
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """The public key in a PEM file."""
    _cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    content = _content(path)
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise SignatureError(
            "is not a public Ed25519 key in PEM",
            where=str(path),
            remedy="give the .pub file that `leakgauge key new` wrote",
        )
    return key


def sign(folder: Path, names: Iterable[str], key: Ed25519PrivateKey) -> Path:
    """Sign those of the named files that are there; the same files and key give the same ``signature.json``."""
    files = {name: _digest(folder / name) for name in sorted(set(names)) if (folder / name).is_file()}
    signature = key.sign(_signed(files)).hex()
    path = folder / FILE
    write(path, json.dumps({"files": files, "signature": signature}, indent=1, sort_keys=True).encode() + b"\n")
    return path


def verify(folder: Path, key: Ed25519PublicKey, expected: Iterable[str] = ()) -> list[str]:
    """The names of the signed files, all of them unchanged; else every problem in one :class:`SignatureError`.

    ``expected`` are names that a reader would trust: if such a file is there, it must be signed.
    """
    from cryptography.exceptions import InvalidSignature

    path = folder / FILE
    files, signature = _read(path)
    try:
        key.verify(signature, _signed(files))
    except InvalidSignature:
        raise SignatureError(
            "was not made with this key, or was changed",
            where=str(path),
            remedy="check the key; if it is the right one, do not rely on these files",
        ) from None
    problems = [f"{name} {state}" for name, digest in files.items() if (state := _state(folder / name, digest))]
    problems += [f"{name} is not signed" for name in expected if name not in files and os.path.lexists(folder / name)]
    if problems:
        raise SignatureError(
            "; ".join(problems), where=str(folder), remedy="do not rely on it; ask for the files again"
        )
    return list(files)


def _state(path: Path, digest: str) -> str | None:
    """What is wrong with a file, if anything."""
    if not path.is_file():
        return "is missing"
    return None if _digest(path) == digest else "was changed after it was signed"


def _signed(files: Mapping[str, str]) -> bytes:
    return _CONTEXT + json.dumps(files, sort_keys=True, separators=(",", ":")).encode()


def _read(path: Path) -> tuple[dict[str, str], bytes]:
    try:
        read: Any = json.loads(_content(path))
        files, signature = read["files"], bytes.fromhex(read["signature"])
        sound = isinstance(files, dict) and all(_NAME.fullmatch(n) and isinstance(d, str) for n, d in files.items())
    except (ValueError, TypeError, KeyError, RecursionError):
        sound = False
    if not sound:
        raise SignatureError("is not a signature of leakgauge", where=str(path), remedy="ask for the files again")
    return files, signature


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _content(path: Path) -> bytes:
    if not path.is_file():
        what = "is no regular file" if os.path.lexists(path) else "no such file"
        raise SignatureError(what, where=str(path), remedy="check the path")
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST)
    except OSError as fault:
        raise SignatureError(f"cannot be read ({fault.strerror})", where=str(path), remedy="check the path") from None


def _cryptography() -> None:
    need("cryptography", "signatures need", where="sign", extra="sign")
