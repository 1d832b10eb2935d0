"""Fuzzing: valid files, changed at random, given to every reader of files that somebody else may have written."""

from evidence.fuzzing.readers import READERS, Reader, reader
from evidence.fuzzing.trying import SECONDS, Failure, fuzz, scratch, tried

__all__ = ["READERS", "SECONDS", "Failure", "Reader", "fuzz", "reader", "scratch", "tried"]
