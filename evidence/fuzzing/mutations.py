"""Changes of valid files: of bytes, of numbers in text, and inside what a format packs, with checksums that hold."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

INTEGERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
NUMBERS = (
    b"0",
    b"-1",
    b"1",
    b"255",
    b"65536",
    b"2147483648",
    b"9" * 19,
    b"9" * 400,
    b"1e999",
    b"-1e-999",
    b"nan",
    b"NaN",
    b"-Infinity",
)
TEXTS: tuple[bytes, ...] = (
    b"\0", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\x1b[2J", b"\n", b"'", b'"', b"{", b"}", b"[", b"]" * 50,
    b"[" * 3000, b"(" * 300, b"a." * 2000, b"../../x", b"/dev/zero", b"os:system('touch ran')", b"\xe2\x80\xae",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, 10**400, 1e308, "", "x", "\ud800", "../../x", "os:system('touch ran')", [], [[]], {},
    {"": 0}, "9" * 5000, -0.0, "identity()", [None] * 3, {"a": {"b": {}}}, "<script>", "\x00",
)  # fmt: skip


def flipped(content: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + bytes((content[place] ^ 1 << rng.randrange(8),)) + content[place + 1 :]


def overwritten(content: bytes, rng: Random) -> bytes:
    """A whole number in place of some bytes, of either end first."""
    width, place = rng.choice((1, 2, 4, 8)), rng.randrange(len(content))
    value = rng.choice(INTEGERS) & (1 << 8 * width) - 1
    return content[:place] + value.to_bytes(width, rng.choice(("little", "big"))) + content[place + width :]


def cut(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content))]


def removed(content: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + content[place + rng.randrange(1, 64) :]


def doubled(content: bytes, rng: Random) -> bytes:
    place, size = rng.randrange(len(content)), rng.randrange(1, 256)
    return content[: place + size] + content[place : place + size] * rng.choice((1, 1, 2, 50)) + content[place + size :]


def inserted(content: bytes, rng: Random) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + rng.choice((*TEXTS, rng.randbytes(rng.randrange(1, 16)))) + content[place:]


def renumbered(content: bytes, rng: Random) -> bytes:
    """Another number in place of one that is written in text."""
    numbers = list(re.finditer(rb"-?\d+(?:\.\d+)?", content[:100_000]))
    if not numbers:
        return flipped(content, rng)
    number = rng.choice(numbers)
    return content[: number.start()] + rng.choice(NUMBERS) + content[number.end() :]


BYTES: tuple[Mutation, ...] = (flipped, overwritten, cut, removed, doubled, inserted, renumbered)


def of_bytes(content: bytes, rng: Random) -> bytes:
    """One to four changes of bytes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        content = rng.choice(BYTES)(content, rng) if content else rng.randbytes(8)
    return content


def of_words(words: Sequence[bytes]) -> Mutation:
    """Words of a language in place of each other, or anywhere."""
    pattern = re.compile(rb"[A-Za-z_]\w*")

    def replaced(content: bytes, rng: Random) -> bytes:
        for _ in range(rng.choice((1, 1, 2, 3))):
            places = list(pattern.finditer(content)) or [re.compile(rb"").search(content)]
            at = rng.choice(places)
            assert at is not None
            content = content[: at.start()] + rng.choice(words) + content[at.end() :]
        return content if rng.random() < 0.5 else of_bytes(content, rng)

    return replaced


def of_gzip(content: bytes, rng: Random) -> bytes:
    """What a gzip file unpacks to, packed again; of a plain file its bytes."""
    packed = content[:2] == b"\x1f\x8b"
    changed = of_bytes(gzip.decompress(content) if packed else content, rng)
    return gzip.compress(changed, 1, mtime=0)


def of_zip(content: bytes, rng: Random) -> bytes:
    """A member of a zip archive, its name, or its presence; the directory and the checksums fit again."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    which, how = rng.randrange(len(members)), rng.choice(("content", "content", "content", "name", "gone", "twice"))
    name, body = members[which]
    if how == "gone":
        del members[which]
    elif how == "twice":
        members.append((f"{name}2", body))
    else:
        changed = of_bytes(name.encode(), rng).decode("latin-1").replace("\0", "") or "x"
        members[which] = (changed, body) if how == "name" else (name, of_bytes(body, rng))
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as new:
        for name, body in members:
            new.writestr(zipfile.ZipInfo(name), body, new.compression)
    return out.getvalue()


def of_header(content: bytes, rng: Random) -> bytes:
    """The JSON header of a safetensors file; its length fits again."""
    (length,) = struct.unpack("<Q", content[:8])
    header, body = content[8 : 8 + length], content[8 + length :]
    header = of_json(header, rng) if rng.random() < 0.7 else of_bytes(header, rng)
    return struct.pack("<Q", len(header)) + header + body


def of_facts(content: bytes, rng: Random) -> bytes:
    """The JSON in the metadata of a safetensors file; its length fits again."""
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header["__metadata__"]
    key = rng.choice(list(metadata))
    try:
        metadata[key] = of_json(metadata[key].encode(), rng).decode("utf-8", errors="replace")
    except ValueError:  # plain text
        metadata[key] = json.dumps(rng.choice(ODD))
    if rng.random() < 0.3:
        metadata[key] = json.dumps(rng.choice(ODD))
    changed = json.dumps(header).encode()
    return struct.pack("<Q", len(changed)) + changed + body


def of_png(content: bytes, rng: Random) -> bytes:
    """The data of one chunk of a PNG file; lengths and checksums fit again. Of anything else its bytes."""
    if content[:4] != b"\x89PNG":
        return of_bytes(content, rng)
    chunks, place = list[tuple[bytes, bytes]](), 8
    while place + 8 <= len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + length]))
        place += 12 + length
    which = rng.randrange(len(chunks))
    kind, data = chunks[which]
    if kind == b"IDAT" and rng.random() < 0.5:
        data = zlib.compress(of_bytes(zlib.decompress(data), rng))
    else:
        data = of_bytes(data, rng)
    chunks[which] = (kind, data)
    parts = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return content[:8] + b"".join(parts)


def of_json(content: bytes, rng: Random) -> bytes:
    """Values of a JSON text: one becomes something odd, is taken out, or stands elsewhere as well."""
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = _places(value) if isinstance(value, dict | list) else []
        if not places:
            break
        holder, key = rng.choice(places)
        how = rng.choice(("odd", "odd", "gone", "elsewhere"))
        if how == "gone":
            del holder[key]
        elif how == "odd":
            holder[key] = deepcopy(rng.choice(ODD))  # a later change must not change the choices
        else:
            other, there = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[there]))
    return json.dumps(value).encode("utf-8", errors="surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in nested dictionaries and lists, as what holds it and its key."""
    places, todo = list[tuple[Any, Any]](), [value]
    while todo:
        holder = todo.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            places.append((holder, key))
            if isinstance(holder[key], dict | list):
                todo.append(holder[key])
    return places
