"""What an attack on a captured update found, beside what the same attack finds in noise.

With known records the reconstructions are scored. Without, what can be said is how much of the update each
reconstruction explains, beside what the same attack explains of several draws of noise in its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from leakgauge.inspect.captures import Capture
from leakgauge.inspect.comparison import LEVEL, threshold
from leakgauge.inspect.readings import EXPLAINS, TURNED, UNDECIDED, decided
from leakgauge.inspect.scoring import Ruler
from leakgauge.meaning import PSNR, Meaning
from leakgauge.observation import Observation, Round
from leakgauge.task import Task
from leakgauge.types import Records, Tree


@dataclass(frozen=True)
class Guess:
    """What an attack made of one observation, and the share of it that this explains."""

    explained: float
    inputs: Tensor
    labels: Tensor
    attack: str


@dataclass(frozen=True)
class Finding:
    """What one captured update gave away.

    ``inputs [B, …]`` and ``labels [B]`` are the reconstruction, ``explained`` its share ``cos²`` of the update;
    ``null`` and ``null_explained`` the same of noise in the update's place (its best draw). ``above_noise``: the share
    is beyond the spread of all draws. With known records, ``scores`` and ``null_scores`` are those of both, per known
    record, in the ``metric`` of their domain, and ``nearer`` says which are beyond that spread. ``other`` is the
    reconstruction of the opposite reading of the update's sign, where the two cannot be told apart.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    explained: float
    null: Tensor
    null_explained: float
    adversary: str
    sentence: str
    metric: Meaning = PSNR
    scores: tuple[float, ...] = ()
    null_scores: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    above_noise: bool = False
    nearer: tuple[bool, ...] = ()
    turned: bool = False
    other: Guess | None = None

    @property
    def psnr(self) -> tuple[float, ...]:
        """The scores of images."""
        return self.scores if self.metric == PSNR else ()

    @property
    def null_psnr(self) -> tuple[float, ...]:
        return self.null_scores if self.metric == PSNR else ()

    def as_json(self) -> dict[str, Any]:
        """Everything but the images."""
        other = self.other and {"labels": self.other.labels.tolist(), "explained": round(self.other.explained, 6)}
        return {
            "name": self.name,
            "labels": self.labels.tolist(),
            "explained": round(self.explained, 6),
            "null_explained": round(self.null_explained, 6),
            "above_noise": self.above_noise,
            "turned": self.turned,
            "opposite_sign": other,
            "adversary": self.adversary,
            "metric": self.metric.name,
            "scores": [round(v, 3) for v in self.scores],
            "null_scores": [round(v, 3) for v in self.null_scores],
            "nearer": list(self.nearer),
            "sentence": self.sentence,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Compared:
    """The guesses from every reading of a capture, beside those from noise in its place.

    ``turned`` says of each reading whether it is the opposite of the one given; ``entries`` is the size of the update.
    """

    entries: int
    turned: Sequence[bool]
    guesses: Sequence[Guess]
    from_noise: Sequence[Guess]
    known: Records | None
    labels_known: bool = False

    def finding(self, capture: Capture) -> Finding:
        above = [self.above_noise(guess) for guess in self.guesses]
        best, other = 0, None
        if len(self.guesses) > 1:
            shares = [guess.explained for guess in self.guesses]
            choice = decided(shares, above, labels_known=self.labels_known)
            best = choice or 0
            other = self.guesses[1] if choice is None else None
        guess, turned = self.guesses[best], self.turned[best]
        notes = capture.notes + ((TURNED,) if turned else ()) + ((UNDECIDED,) if other else ())
        null = max(self.from_noise, key=lambda one: one.explained)
        finding = Finding(
            name=capture.name,
            inputs=guess.inputs,
            labels=guess.labels,
            explained=guess.explained,
            null=null.inputs,
            null_explained=null.explained,
            adversary=guess.attack,
            sentence="",
            notes=notes,
            above_noise=any(above) if other else above[best],
            turned=turned,
            other=other,
        )
        return self._scored(finding)

    def above_noise(self, guess: Guess) -> bool:
        """Correlations are compared as Fisher's z; with noise in P entries they spread by ``1/√P`` at least."""
        level = LEVEL / len(self.guesses)
        limit = threshold([_fisher(one.explained) for one in self.from_noise], level=level, least=self.entries**-0.5)
        return _fisher(guess.explained) > limit

    def _scored(self, finding: Finding) -> Finding:
        """With the scores of known records, and the sentence."""
        if self.known is None:
            return replace(finding, sentence=_sentence(finding))
        known, ruler = self.known, Ruler.of(self.known.domain)
        own = [finding.inputs] if finding.other is None else [finding.inputs, finding.other.inputs]
        noise = [one.inputs for one in self.from_noise]
        scored = replace(
            finding,
            metric=ruler.metric.meaning,
            scores=ruler.scores(own, known),
            null_scores=ruler.scores(noise, known),
            nearer=tuple(ruler.beyond(own, noise, known, LEVEL / len(self.guesses))),
        )
        return replace(scored, sentence=_sentence(scored))


def explained(task: Task, inputs: Tensor, labels: Tensor, observation: Observation) -> float:
    """``cos²`` between a candidate's update and the observed one: the share that it explains up to scale; the mean of
    several rounds."""
    shares = [_share(task.update(Records(inputs, labels, task.domain), one.params), one) for one in observation.rounds]
    return math.fsum(shares) / len(shares)


def _share(ours: Tree, one: Round) -> float:
    theirs = one.observed
    dot = sum(float((ours[n].double() * theirs[n].double()).sum()) for n in ours)
    sizes = [sum(float(v.double().square().sum()) for v in tree.values()) for tree in (ours, theirs)]
    return max(dot, 0.0) ** 2 / max(sizes[0] * sizes[1], 1e-300)


def _fisher(share: float) -> float:
    """``artanh cos`` of a share ``cos²``: about normal where the correlation itself is squeezed below one."""
    return math.atanh(min(math.sqrt(share), 1 - 1e-15))


def _sentence(finding: Finding) -> str:
    if finding.scores:
        scores, null, metric = finding.scores, finding.null_scores, finding.metric
        best = max(range(len(scores)), key=lambda i: scores[i])
        beyond = f"{sum(finding.nearer)} of {len(scores)} known records are nearer than from noise"
        name = "" if metric.unit else f"{metric.label} "
        own, other = metric.text(scores[best]), metric.text(null[best])
        return f"Best known record {best}: {name}{own}, from noise {other}; {beyond}."
    share, null_share = finding.explained, finding.null_explained
    both = (
        f"The reconstruction explains {share:.1%} of the update, the same attack {null_share:.1%} of noise "
        "in its place. "
    )
    if not finding.above_noise:
        return both + "Nothing can be concluded: the attack did no better than on noise."
    if share > EXPLAINS:
        return both + "An update of this shape comes from inputs like these: take them for your data and look."
    return both + (
        f"That is beyond the spread of noise (level {LEVEL}): something was found. Of an update with noise even "
        "the truth explains only a part: look at the picture."
    )
