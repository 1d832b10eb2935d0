"""The report as JUnit XML: a defense is a test case, a leak is a failure, so that any CI can show it."""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

from leakgauge.audit.judge.values import Checkpoint, Defense
from leakgauge.audit.judge.words import WORDS, Word, fails
from leakgauge.report import formats
from leakgauge.report.reading import Run

_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(run: Run, *, fail_on: Word = "recognisable") -> str:
    """One test case per defense and checkpoint.

    A case fails when its verdict is at or above ``fail_on``, or when nothing can be concluded: an audit that could not
    judge must not turn a build green.
    """
    cases = list(run.result.each())
    failed = sum(fails(d.attack.verdict, fail_on) for _, d in cases)
    counts = {"tests": str(len(cases)), "failures": str(failed), "errors": "0", "skipped": "0"}
    root = Xml.Element("testsuites", {"name": "leakgauge", **counts})
    suite = Xml.SubElement(root, "testsuite", {"name": "leakgauge", **counts})
    several = len(run.result.checkpoints) > 1
    for checkpoint, defense in cases:
        _case(suite, run, checkpoint, defense, fail_on, several)
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _case(suite: Xml.Element, run: Run, at: Checkpoint, defense: Defense, fail_on: Word, several: bool) -> None:
    name = _clean(f"{defense.name} at step {at.step}" if several else defense.name)
    case = Xml.SubElement(suite, "testcase", classname="leakgauge.audit", name=name, time="0")
    word, metric = defense.verdict, run.result.judge
    told = _clean(
        f"{defense.expression}\nverdict: {word}\nwhy: {defense.attack.why}\n"
        f"gain in {metric.label}: {formats.gain(defense.attack.excess, metric)}\n"
        f"bound: {formats.bound(defense.bound)}\n"
        + (f"{defense.encoding.called}s recognised: {formats.encoding(defense.encoding)}\n" if defense.encoding else "")
        + "".join(f"adversaries: {note}\n" for note in run.result.notes)
        + f"{WORDS[word].plain}\n{run.result.scope}"
    )
    if fails(word, fail_on):
        message = _clean(f"{word}: {defense.attack.why}")
        Xml.SubElement(case, "failure", type=word.replace(" ", "-"), message=message).text = told
    else:
        Xml.SubElement(case, "system-out").text = told


def _clean(text: str) -> str:
    """XML 1.0 has no control characters, not even escaped ones."""
    return _FORBIDDEN.sub("\ufffd", text)
