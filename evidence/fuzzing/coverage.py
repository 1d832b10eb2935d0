"""Coverage-guided fuzzing of one reader: ``python -m evidence.fuzzing.coverage READER [atheris options]``.

Needs atheris (``pip install atheris``), which has wheels for Linux only and is in no extra. It runs until it finds a
failure, or as long as ``-max_total_time=SECONDS`` says; what it finds belongs into ``tests/storage`` as a test.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random


def main(arguments: list[str]) -> None:
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed; type: pip install atheris")
    for name in [name for name in sys.modules if name.startswith(("leakgauge", "evidence.fuzzing."))]:
        del sys.modules[name]  # the package has imported them before this module ran, without instruments
    sys.modules.pop("evidence.fuzzing", None)
    with atheris.instrument_imports(include=["leakgauge"]):
        from evidence.fuzzing import READERS, reader, tried
    if not arguments or arguments[0] not in READERS:
        sys.exit(f"name a reader: {', '.join(READERS)}")
    chosen, folder = reader(arguments[0]), Path(tempfile.mkdtemp())
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, content in enumerate(chosen.files.values()):
        (corpus / str(number)).write_bytes(content)

    def once(content: bytes) -> None:
        if wrong := tried(chosen, content, folder / "work"):
            raise AssertionError("; ".join(wrong))

    def changed(content: bytes, most: int, seed: int) -> bytes:
        """Half of the changes are ours, which keep checksums whole; the other half are libFuzzer's."""
        rng = Random(seed)
        if seed % 2 or not content:
            return bytes(atheris.Mutate(content, most))
        try:
            return rng.choice(chosen.mutations)(content, rng)[:most]
        except Exception:  # no longer a file of its format
            return bytes(atheris.Mutate(content, most))

    atheris.Setup([sys.argv[0], *arguments[1:], str(corpus)], once, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
