"""Looking at a file of ``torch.save`` before torch reads it: what it asks for, and where its parts lie.

``torch.load(weights_only=True)`` runs no code, but a few hundred bytes can still make it fill memory
(``bytearray(2**31)``, an encoding applied again and again) or compute for ever (the hash of tuples within tuples).
Dense tensors need neither.
"""

from __future__ import annotations

import pickletools
import re
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

NEEDED = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|tensor_v3|parameter|parameter_with_state"
    r"|device_tensor_from_cpu_tensor)|torch (\w+Storage|Size|device|b?float\d+\w*|u?int\d+|bool)"
    r"|torch\.storage (TypedStorage|UntypedStorage)"
)
"""Names that a state of dense tensors is made of."""
ALIGNMENTS = frozenset(str(1 << power).encode() for power in range(17))
DEEPEST = 10
"""Tuples within tuples: the hash of one takes twice as long per level."""
_END, _END_64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_POPPED = {"REDUCE": 1, "BUILD": 1, "APPEND": 1, "SETITEM": 2, "NEWOBJ": 1}
_FROM_MARK = frozenset({"APPENDS", "SETITEMS"})
_SILENT = frozenset({"PROTO", "STOP", "FRAME", "BINPERSID"})


def harmful(path: Path) -> str | None:
    """What is wrong with an archive of ``torch.save``, if anything."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        if not _one_directory(raw, archive):
            return "is no archive as torch.save writes them: its directory is not where it says"
        names = [info.filename.lower() for info in archive.infolist()]  # torch ignores case
        if len(set(names)) != len(names):
            return "has two parts of one name"
        for info in archive.infolist():
            if info.filename.lower().endswith(".storage_alignment") and archive.read(info) not in ALIGNMENTS:
                return "says an alignment that no storage has"  # torch divides by it: 0 ends the whole process
            if info.filename.lower().endswith("data.pkl") and (reason := _unneeded(archive.read(info))):
                return reason
    return None


def _one_directory(raw: IO[bytes], archive: zipfile.ZipFile) -> bool:
    """Whether the directory lies where the file says. Python looks for it elsewhere, too, torch does not: they would
    read different parts."""
    end = raw.seek(0, 2) - _END.size
    signature, _, _, _, _, size, start, _ = _at(raw, end, _END)
    if signature != b"PK\x05\x06":
        return False
    locator, _, place, _ = _at(raw, end - _LOCATOR_64.size, _LOCATOR_64)
    if locator == b"PK\x06\x07":  # torch.save always writes this one, too
        end -= _LOCATOR_64.size + _END_64.size
        signature, *_, size, start = _at(raw, end, _END_64)
        if signature != b"PK\x06\x06" or place != end:
            return False
    return bool(start + size == end and start == archive.start_dir)


def _at(raw: IO[bytes], place: int, form: struct.Struct) -> tuple[Any, ...]:
    raw.seek(max(place, 0))
    return form.unpack(raw.read(form.size).ljust(form.size, b"\0"))


def _unneeded(content: bytes) -> str | None:
    """What a pickle asks for that no state of dense tensors needs."""
    stack, marks, memo = list[int](), list[int](), dict[int, int]()  # how deep tuples are nested in every value
    for op, argument, _ in pickletools.genops(content):
        name = op.name
        if name == "GLOBAL" and not NEEDED.fullmatch(str(argument)):
            return f"asks for {str(argument)[:60].replace(' ', '.')}"
        if name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE" or name in _TUPLES:
            place = marks.pop() if name == "TUPLE" else len(stack) - _TUPLES[name]
            depth = 1 + max(stack[place:], default=0)
            if depth > DEEPEST:
                return f"has tuples within tuples, more than {DEEPEST} deep"
            stack[place:] = [depth]
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[int(argument or 0)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument or 0)])
        elif name in _POPPED:
            del stack[-_POPPED[name] :]
        elif name in _FROM_MARK:
            del stack[marks.pop() :]
        elif name not in _SILENT:
            stack.append(0)
    return None
