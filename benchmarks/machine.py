"""What the numbers depend on besides the code: threads, allocator, load, and the machine's own GEMM speed."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
import time
from pathlib import Path
from typing import Literal

import torch

Malloc = Literal["tuned", "default"]
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
TOP_PAD = 256 * 2**20


def prepare(malloc: Malloc) -> str:
    """One thread, and the allocator for the rest of this process; says what was set.

    glibc maps every large temporary anew and gives it back, so that a loop over 40-megabyte gradients spends most of
    its time on page faults. Tuned, it keeps its memory: this helps the peers' loops far more than ours.
    """
    torch.set_num_threads(1)
    if malloc == "default":
        return "default"
    if not sys.platform.startswith("linux"):
        raise SystemExit("--malloc tuned needs glibc; use --malloc default")
    libc = ctypes.CDLL("libc.so.6")
    done = [
        libc.mallopt(_M_MMAP_MAX, 0),
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1),
        libc.mallopt(_M_TOP_PAD, TOP_PAD),
    ]
    if done != [1, 1, 1]:
        raise SystemExit(f"mallopt refused the settings ({done}); use --malloc default")
    return "tuned (M_MMAP_MAX=0, M_TRIM_THRESHOLD=2^31-1, M_TOP_PAD=256 MB)"


def gemm_peak(size: int = 1024, times: int = 3) -> float:
    """The best single-precision GEMM speed of one thread, FLOP/s."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = a @ b
    best = 0.0
    for _ in range(times):
        start = time.process_time()
        torch.mm(a, b, out=out)
        best = max(best, 2 * size**3 / (time.process_time() - start))
    return best


def cpu() -> str:
    """The processor's name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def load() -> float:
    """The load average of the last minute: what else the machine was doing."""
    return os.getloadavg()[0]
