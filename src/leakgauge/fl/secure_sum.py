"""Secure sums: a server learns ``Σ x_k`` over a cohort of clients, and no ``x_k``.

Client k sends ``y_k = x_k + Σ_{j>k} m_kj − Σ_{j<k} m_kj  (mod 2⁶⁴)``: every mask is added once and subtracted once. A
pair's mask is the ChaCha20 key stream under a key of its own, ``HKDF-SHA256(X25519(k, j))`` bound to run, quantity,
attempt, cohort and pair. Key pairs are new in every session and used once, and signed with the clients' long-lived
Ed25519 keys, whose public halves everybody has beforehand (:class:`Identity`).

What it protects from: a server that follows the protocol and looks at everything (honest but curious), also
one that exchanges keys. What it does not: a server that says "client 7 dropped out" when it did not, and adds up both
sessions; clients that lie about their value; all other clients of a cohort together.

References:
    Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, 2017 (pairwise masks).
    Wan et al., Enhancing Privacy Preservation in Federated Learning via Learning Rate Perturbation, 2023, eq. 14.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from leakgauge.errors import DomainError
from leakgauge.fl.cohorts import Answered
from leakgauge.fl.errors import DroppedError, SecureSumError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

Words = NDArray[np.uint64]
DOMAIN = b"leakgauge secure sum 1"
LEAST = 3
"""With two clients, the sum and one's own value are the other's."""
MODULUS = 2**64


def _needed() -> Any:
    """The package behind it, or what to type."""
    from leakgauge.fl.extra import cryptography

    return cryptography()


@dataclass(frozen=True)
class Session:
    """One attempt at one sum: the run, the quantity that is summed, the cohort, and how many numbers each client adds.

    ``quantity`` names the values: two sums of the same quantity are of the same values, and could be subtracted.
    """

    run: str
    quantity: str
    cohort: tuple[str, ...]
    length: int = 1
    attempt: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "cohort", tuple(sorted(self.cohort)))
        twice = sorted({name for name in self.cohort if self.cohort.count(name) > 1})
        if twice:
            raise SecureSumError(f"client {twice[0]!r} is there twice", where="cohort", remedy="name each client once")
        if len(self.cohort) < LEAST:
            raise SecureSumError(
                f"{len(self.cohort)} clients: whoever knows one value would learn the other",
                where="cohort",
                remedy=f"sum over at least {LEAST} clients",
            )
        if self.length < 1:
            raise SecureSumError("no number to add", where="session", remedy="give each client at least one")

    @property
    def digest(self) -> bytes:
        """Whatever every message and every mask is bound to."""
        parts = [self.run, self.quantity, str(self.attempt), str(self.length), *self.cohort]
        return hashlib.sha256(DOMAIN + b"".join(_framed(part.encode()) for part in parts)).digest()

    @property
    def largest(self) -> int:
        """The largest value of a client: the sum of all must stay below 2⁶⁴."""
        return (MODULUS - 1) // len(self.cohort)

    def pair(self, one: str, other: str) -> bytes:
        """What the masks of two clients are bound to, whoever asks."""
        low, high = sorted((one, other))
        return DOMAIN + self.digest + _framed(low.encode()) + _framed(high.encode())


def _framed(part: bytes) -> bytes:
    """With its length in front, so that no two lists of texts read the same."""
    return len(part).to_bytes(8, "big") + part


@dataclass(frozen=True, repr=False)
class Identity:
    """A client's long-lived key. ``public`` is what the others must have beforehand (a public-key infrastructure)."""

    name: str
    private: Ed25519PrivateKey
    public: bytes

    @classmethod
    def new(cls, name: str) -> Identity:
        key = _needed().Ed25519PrivateKey.generate()
        return cls(name, key, key.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, {self.public.hex()[:16]}…)"


@dataclass(frozen=True)
class Announced:
    """A client's public key of one session, signed."""

    name: str
    key: bytes
    signature: bytes


@dataclass(frozen=True)
class Masked:
    """What the server gets from a client: numbers that are uniform modulo 2⁶⁴ to everybody else, signed."""

    name: str
    values: Words = field(repr=False)
    signature: bytes = field(repr=False)


@dataclass(repr=False)
class Member:
    """A client's side. It refuses whatever would give its value away, whatever the server asks for."""

    identity: Identity
    directory: Mapping[str, bytes]
    answered: Answered = field(default_factory=Answered)
    _keys: dict[bytes, X25519PrivateKey] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.identity.name

    def announce(self, session: Session) -> Announced:
        """A new key for this session. A cohort that gives a value away together with earlier ones is refused."""
        if self.name not in session.cohort:
            raise SecureSumError(f"{self.name!r} is not of the cohort", where="session", remedy="ask its members only")
        strangers = [name for name in session.cohort if name not in self.directory]
        if strangers:
            raise SecureSumError(
                f"nobody knows the identity key of {strangers[0]!r}",
                where=self.name,
                remedy="hand out the public keys of all clients before the first session",
            )
        self.answered.check((session.run, session.quantity), session.cohort, where=self.name)
        key = _needed().X25519PrivateKey.generate()
        public = key.public_key().public_bytes_raw()
        self._keys[session.digest] = key
        signature = self.identity.private.sign(_message(session, b"key", self.name, public))
        return Announced(self.name, public, signature)

    def mask(self, session: Session, announced: Sequence[Announced], values: Sequence[int] | Words) -> Masked:
        """The client's values under the masks of all pairs; the key of the session is forgotten.

        Whole numbers must add up below 2⁶⁴; words (uint64) are residues, such as :func:`~leakgauge.fl.fixed_point`
        gives, whose range was looked at there.
        """
        numbers = _checked(session, values, self.name)
        keys = {one.name: one for one in announced}
        _complete(session, keys, "key")
        own = self._keys.pop(session.digest, None)
        if own is None:
            raise SecureSumError(
                f"{self.name!r} has no unused key for this session",
                where="session",
                remedy="announce first; every attempt needs new keys",
            )
        for one in keys.values():
            _verify(self.directory, one.name, _message(session, b"key", one.name, one.key), one.signature, "key")
        if keys[self.name].key != own.public_key().public_bytes_raw():
            raise SecureSumError(
                "the server handed out another key in its name", where=self.name, remedy="end this run"
            )
        masked = numbers
        with np.errstate(over="ignore"):
            for name, one in keys.items():
                if name != self.name:
                    stream = _stream(own, one.key, session, self.name, name)
                    masked = masked + stream if self.name < name else masked - stream
        signature = self.identity.private.sign(_message(session, b"values", self.name, masked.astype("<u8").tobytes()))
        return Masked(self.name, masked, signature)

    def learn(self, session: Session) -> None:
        """The sum of this session is out: cohorts that would give a value away beside it are refused from now on."""
        self.answered.add((session.run, session.quantity), session.cohort)


def total(session: Session, masked: Sequence[Masked], directory: Mapping[str, bytes]) -> list[int]:
    """The server's side: the sum of everybody's values, or an error; never the sum of some."""
    sent = {one.name: one for one in masked}
    _complete(session, sent, "values")
    if len(sent) != len(masked):
        raise SecureSumError("a client answered twice", where="secure sum", remedy="count each answer once")
    result = np.zeros(session.length, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for one in sent.values():
            message = _message(session, b"values", one.name, one.values.astype("<u8").tobytes())
            _verify(directory, one.name, message, one.signature, "values")
            result = result + one.values
    return [int(number) for number in result]


def _complete(session: Session, answers: Mapping[str, object], what: str) -> None:
    missing = [name for name in session.cohort if name not in answers]
    strange = [name for name in answers if name not in session.cohort]
    if missing:
        raise DroppedError(missing, f"no {what} from {', '.join(map(repr, missing[:3]))}: their masks do not cancel")
    if strange:
        raise SecureSumError(f"{strange[0]!r} is not of the cohort", where="secure sum", remedy="ask its members only")


def _checked(session: Session, values: Sequence[int] | Words, name: str) -> Words:
    if len(values) != session.length:
        raise SecureSumError(
            f"{len(values)} numbers for a session of {session.length}", where=name, remedy=f"give {session.length}"
        )
    if isinstance(values, np.ndarray) and values.dtype == np.uint64:
        return values
    if not all(isinstance(value, int) and 0 <= value <= session.largest for value in values):
        raise DomainError(
            f"a value is no whole number in 0..{session.largest}: {len(session.cohort)} of them must add up below 2^64",
            where=name,
            remedy="count in larger units, or encode numbers with a point by fixed_point()",
        )
    return np.array(values, dtype=np.uint64)


def _message(session: Session, what: bytes, name: str, content: bytes) -> bytes:
    """What a signature is about."""
    return DOMAIN + what + session.digest + _framed(name.encode()) + content


def _verify(directory: Mapping[str, bytes], name: str, message: bytes, signature: bytes, what: str) -> None:
    needed = _needed()
    try:
        needed.Ed25519PublicKey.from_public_bytes(directory[name]).verify(signature, message)
    except (needed.InvalidSignature, KeyError):
        raise SecureSumError(
            f"the {what} of {name!r} are not signed by {name!r} for this session",
            where="secure sum",
            remedy="somebody exchanged messages or identities: end this run",
        ) from None


def _stream(own: X25519PrivateKey, theirs: bytes, session: Session, one: str, other: str) -> Words:
    """The mask of a pair: the key stream of a key that only the two of them can compute."""
    needed = _needed()
    shared = own.exchange(needed.X25519PublicKey.from_public_bytes(theirs))
    hkdf = needed.HKDF(algorithm=needed.SHA256(), length=32, salt=None, info=session.pair(one, other))
    # the key serves this one stream, so that a nonce of zeros repeats nothing
    cipher = needed.Cipher(needed.ChaCha20(hkdf.derive(shared), bytes(16)), mode=None).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * session.length)), dtype="<u8").astype(np.uint64)


__all__ = ["LEAST", "Announced", "Identity", "Masked", "Member", "Session", "total"]
