"""Worker processes: started without the current folder on their path, ended with whoever started them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from typing import Any

import torch

SAFE_PATH = "PYTHONSAFEPATH"


@contextmanager
def pool(workers: int, begin: Callable[..., None], arguments: tuple[Any, ...]) -> Iterator[ProcessPoolExecutor]:
    """A pool of new processes, each of which calls ``begin`` first. However it is left, none of them stays."""
    with _without_current_folder():
        executor = ProcessPoolExecutor(workers, get_context("spawn"), begin, arguments)  # starts a tracker at once
        try:
            yield executor
        finally:
            processes = list((executor._processes or {}).values())  # Python has no public name for them before 3.14
            executor.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()  # what it was writing is a temporary file; what is committed is whole


@contextmanager
def _without_current_folder() -> Iterator[None]:
    """Python starts workers by ``python -c``, which looks for every module in the current folder first: whoever put a
    ``signal.py`` there would have it executed."""
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_PATH]
        else:
            os.environ[SAFE_PATH] = before


def begin_worker() -> None:
    """What every worker does first: one thread, no interrupts of its own, and an end when its parent ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends its workers
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
