"""The optional dependency of secure sums, in one place."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

from leakgauge.errors import need


@cache
def cryptography() -> SimpleNamespace:
    """The primitives that secure sums use, or what to type where they are not installed."""
    need("cryptography", "secure sums need", where="secure sum", extra="fl")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return SimpleNamespace(
        InvalidSignature=InvalidSignature,
        Ed25519PrivateKey=Ed25519PrivateKey,
        Ed25519PublicKey=Ed25519PublicKey,
        X25519PrivateKey=X25519PrivateKey,
        X25519PublicKey=X25519PublicKey,
        Cipher=Cipher,
        ChaCha20=ChaCha20,
        SHA256=SHA256,
        HKDF=HKDF,
    )
