"""What an examination says: findings, each with the number behind it, and whether the claims hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["broken", "caution", "not probed", "holds"]
"""``broken``: the claim does not hold. ``caution``: it holds under a condition that cannot be checked here. ``not
probed``: the fault is known of some version, and the package cannot be tried. ``holds``: examined, nothing wrong."""


@dataclass(frozen=True)
class Finding:
    """One sentence about one setting; ``numbers`` are those in the sentence, by name."""

    rule: str
    level: Level
    what: str
    remedy: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    where: str = ""
    probe: str = ""

    def __str__(self) -> str:
        pieces = [f"{self.where}: " if self.where else "", self.what]
        pieces += [f"; {self.remedy}" if self.remedy else "", f" [{self.probe}]" if self.probe else ""]
        return "".join(pieces)

    def as_json(self) -> dict[str, Any]:
        fields = ("rule", "level", "what", "remedy", "where", "probe")
        return {**{name: getattr(self, name) for name in fields}, "numbers": dict(self.numbers)}


@dataclass(frozen=True)
class Examined:
    """The findings about one setting, and where it stands."""

    setting: str
    where: str
    findings: tuple[Finding, ...]


def refused(setting: str, where: str, fault: Exception) -> Examined:
    """A setting whose values have no meaning: it claims nothing that can hold."""
    remedy = "look at what the app really runs with"
    return Examined(setting, where, (Finding("values", "broken", str(fault), remedy, where=where),))


@dataclass(frozen=True)
class Claims:
    """What was examined, setting by setting; ``notes`` say what could not be read."""

    subject: str
    settings: tuple[Examined, ...]
    notes: tuple[str, ...] = ()

    @property
    def hold(self) -> bool:
        """Whether no claim is broken."""
        return not self.of("broken")

    @property
    def unexamined(self) -> int:
        """How many values, faults and files could not be looked at; :attr:`notes` and findings name them."""
        return len(self.of("not probed")) + sum(f.rule == "values" for f in self.of("caution")) + len(self.notes)

    def of(self, level: Level) -> list[Finding]:
        """The findings of one level."""
        return [finding for one in self.settings for finding in one.findings if finding.level == level]

    def as_json(self) -> dict[str, Any]:
        settings = [
            {"setting": one.setting, "where": one.where, "findings": [f.as_json() for f in one.findings]}
            for one in self.settings
        ]
        return {"subject": self.subject, "hold": self.hold, "settings": settings, "notes": list(self.notes)}
