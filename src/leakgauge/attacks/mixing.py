"""Against MixUp and InstaHide: invert the encodings of several rounds, then solve for the records behind them.

MixUp's encodings are linear in the records, ``E = Λ X``: least squares. InstaHide's are so up to a sign per pixel,
``|E| = |Λ X|``: phase retrieval, pixel by pixel, which leaves one sign per pixel open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.adversary import Reconstruction
from leakgauge.attacks.adapting import Decoder, Invert, decodes
from leakgauge.attacks.unmixing import Mixture, aligned, coordinates, exact, fitted, matrix, unmixed
from leakgauge.client import LABELS
from leakgauge.defenses import InstaHide, MixUp
from leakgauge.defenses.input.mixing import CENTRE, coefficients, public_images
from leakgauge.errors import ObservationError
from leakgauge.observation import Observation
from leakgauge.types import Knowledge, Treatment, Tree


def decode_mixup(encodings: Tensor, indices: Tensor, weights: Tensor, records: int) -> Tensor:
    """``argmin_X ‖Λ X − E‖²``, in float64: exact encodings give exact records wherever Λ has full column rank."""
    mixes = matrix(indices, weights, records)
    solved: Tensor = torch.linalg.lstsq(mixes, encodings.double().flatten(1), driver="gelsd").solution
    return solved.view(records, *encodings.shape[1:])


def fitted_coefficients(encodings: Tensor, indices: Tensor, records: int, part: MixUp, *, steps: int = 200) -> Tensor:
    """Hidden coefficients of known mixtures: ``min_{Λ, X} ‖Λ X − E‖²``, rows of Λ on their indices and summing to one.

    In closed form, which is exact without errors, or alternated from the mean of the coefficients' law, which bears
    them: the least residual wins.
    """
    points = coordinates(encodings, records)
    mean = coefficients(10_000, part.k, part.law, part.cap, torch.Generator().manual_seed(0)).mean(0)
    start: Tensor = mean.double().expand(len(points), -1)
    tried = exact(points, indices, records, steps=0), fitted(points, indices, start, records, steps=steps)
    return min(tried, key=lambda mixture: mixture.residual).weights


def guessed_coefficients(indices: Tensor, labels: Tensor | None, records: int, part: MixUp) -> Tensor:
    """Hidden coefficients of known mixtures from soft labels ``[M, classes]``, which are mixed alike.

    The class of a record is the one that no encoding with it lacks; a class's share of a label is what its records have
    together, split like the mean of the coefficients' law. Without labels it is that mean.
    """
    mean = coefficients(10_000, part.k, part.law, part.cap, torch.Generator().manual_seed(0)).mean(0).double()
    weights: Tensor = mean.expand(len(indices), -1)
    if labels is None:
        return weights
    present = torch.zeros(len(indices), records, dtype=torch.float64).scatter(1, indices, 1.0)
    classes = (present.T @ (labels < 1e-6).double()).argmin(1)[indices]
    together = (classes.unsqueeze(2) == classes.unsqueeze(1)).double() @ weights.unsqueeze(2)
    return weights * labels.double().gather(1, classes) / together.squeeze(2)


def hidden_mixture(encodings: Tensor, owners: Tensor, records: int, part: MixUp) -> Mixture | None:
    """Indices and coefficients from encodings alone; encoding m was sent by observation ``owners[m]``.

    None where that cannot be: with fewer than two for each record, or where the best guess explains less than three
    quarters of how encodings differ (they hold records that are not observed, or were not inverted).
    """
    if len(encodings) < 2 * records or records <= part.k:
        return None
    mixture = unmixed(encodings, records, part.k)
    flat = encodings.double().flatten(1)
    images = decode_mixup(encodings, mixture.indices, mixture.weights, records).flatten(1)
    left = matrix(mixture.indices, mixture.weights, records) @ images - flat
    if float(left.square().sum()) > 0.25 * float((flat - flat.mean(0)).square().sum()):
        return None
    return aligned(mixture, owners, records)


def decode_instahide(
    encodings: Tensor,
    indices: Tensor,
    weights: Tensor,
    records: int,
    *,
    public: Tensor | None = None,
    starts: int = 12,
    steps: int = 100,
    seed: int = 0,
) -> Tensor:
    """Magnitudes ``|x − ½|`` of the records: the least ``Σ (|ẽ| − |Λ x|)²`` over ``starts`` starts of each pixel.

    ẽ and x are centred. Alternates ``s = sign(Λ x)`` and ``x = Λ⁺ (s ⊙ |ẽ|)``; pixels are problems of their own, and of
    the starts of a pixel the least residual wins (nothing else is looked at). Without public images the sign of a
    pixel, common to all records, cannot be known: magnitudes are what is recovered, not images.
    """
    mixes = matrix(indices, weights, records)
    known = torch.zeros(len(encodings), encodings[0].numel(), dtype=torch.float64)
    if public is not None:
        others = (indices < 0).double() * weights.double()
        known = torch.einsum("mk,mkp->mp", others, (public[(-1 - indices).clamp(min=0)].double() - CENTRE).flatten(2))
    target = (encodings.double() - CENTRE).abs().flatten(1)
    inverse = torch.linalg.pinv(mixes)
    generator = torch.Generator().manual_seed(seed)
    best, least = torch.zeros(records, target.shape[1], dtype=torch.float64), torch.full((target.shape[1],), torch.inf)
    for _ in range(starts):
        x = torch.rand(records, target.shape[1], generator=generator, dtype=torch.float64) - CENTRE
        for _ in range(steps):
            mixed = mixes @ x + known
            x = inverse @ (torch.where(mixed < 0, -target, target) - known)
        residual = ((mixes @ x + known).abs() - target).square().sum(0)
        better = residual < least
        best[:, better], least[better] = x[:, better], residual[better].to(least)
    return best.abs().view(records, *encodings.shape[1:])


@dataclass(frozen=True)
class Encodings:
    """The encodings that were inverted, ``[M, …]``: who sent each, what is granted of each, how many records there are.

    Encodings that are not finite are left out: a dead layer gives nothing away.
    """

    images: Tensor
    owners: Tensor
    granted: Mapping[str, Tensor]
    records: int

    @classmethod
    def of(cls, inverted: Reconstruction, label: str, observations: Sequence[Observation]) -> Encodings:
        batch, rounds = observations[0].batch, len(observations[0].rounds)
        images = inverted.inputs.flatten(0, 1).cpu()
        usable = images.flatten(1).isfinite().all(1)
        owners = torch.arange(len(observations)).repeat_interleave(rounds * batch)
        rows = [one.granted for observation in observations for one in observation.rounds]
        addresses = {"indices": f"{label}.indices", "coefficients": f"{label}.coefficients", "labels": LABELS}
        granted = {
            name: torch.cat([each[address] for each in rows])[usable]  # type: ignore[misc]
            for name, address in addresses.items()
            if all(address in each for each in rows)
        }
        return cls(images[usable], owners[usable], granted, len(observations) * batch)

    def mixture(self, part: MixUp) -> tuple[Tensor, Tensor] | None:
        """Indices and coefficients: granted, fitted or found; None where they cannot be known."""
        if not self.determines(part):
            return None
        if "indices" in self.granted and ("coefficients" in self.granted or getattr(part, "public", None) is None):
            return _granted(self.granted, self.images, self.records, part)
        if isinstance(part, InstaHide):
            return None
        hidden = hidden_mixture(self.images, self.owners, self.records, part)
        return (hidden.indices, hidden.weights) if hidden else None

    def determines(self, part: MixUp) -> bool:
        """Whether there are as many equations as unknowns; else a fit is arbitrary, and worse than no decoding.

        M encodings of r records lie in r dimensions. Magnitudes alone need ``M ≥ 2r − 1``; hidden coefficients,
        k − 1 free ones each, beside the records themselves ``M r ≥ M (k − 1) + r²``.
        """
        count, unknown = len(self.images), self.records
        if isinstance(part, InstaHide):
            return count >= 2 * unknown - 1
        return "coefficients" in self.granted or count * (unknown - part.k + 1) >= unknown**2

    def decoded(self, part: MixUp, indices: Tensor, weights: Tensor) -> Tensor:
        """The records behind the encodings; of InstaHide their magnitudes, as ``½ + |x − ½|``."""
        if not isinstance(part, InstaHide):
            return decode_mixup(self.images, indices, weights, self.records)
        public = None if part.public is None else public_images(part.public)
        return CENTRE + decode_instahide(self.images, indices, weights, self.records, public=public)


def undo_mixing(invert: Invert, part: MixUp, label: str, observations: Sequence[Observation]) -> Reconstruction:
    """Invert every encoding of every round; decode them, for InstaHide if the indices are granted.

    MixUp's coefficients are fitted where they are hidden, and its indices found, if there are several rounds;
    InstaHide's coefficients follow from soft labels (with public images they must be granted). Else the result is the
    encodings of the first round, status ``encoding``. InstaHide's decoded magnitudes come back as ``½ + |x − ½|``,
    status ``magnitudes``: they are no images of the records. In a batch, granted soft labels tell which encoding is
    which.
    """
    count, rounds = len(observations), len(observations[0].rounds)
    inverted = invert(
        [Observation((one,), observation.batch) for observation in observations for one in observation.rounds]
    )
    plain = replace(
        inverted,
        inputs=inverted.inputs.unflatten(0, (count, rounds))[:, 0],
        labels=inverted.labels.unflatten(0, (count, rounds))[:, 0],
        log_posterior=inverted.log_posterior.view(count, rounds).sum(1),
        traces=inverted.traces[::rounds],
        status=("encoding",) * count,
    )
    encodings = Encodings.of(inverted, label, observations)
    mixture = encodings.mixture(part)
    if mixture is None:
        return plain
    images = encodings.decoded(part, *mixture).to(plain.inputs).view(plain.inputs.shape)
    status = "magnitudes" if isinstance(part, InstaHide) else "decoded"
    return replace(plain, inputs=images, status=(status,) * count, encodings=plain.inputs)


def _treat(part: MixUp, label: str, knows: Mapping[str, Knowledge]) -> tuple[Treatment, ...]:
    """What the decoding does about indices, coefficients and signs that are hidden."""
    indices, coefficients, signs = (f"{label}.{name}" for name in ("indices", "coefficients", "signs"))
    if isinstance(part, InstaHide):
        fitted = "hidden; guessed from soft labels" if knows[indices] == "granted" else "hidden; nothing is decoded"
        return (
            Treatment(indices, "assumed", "hidden; nothing is decoded: the encoding is taken for the record"),
            Treatment(coefficients, "assumed", fitted),
            Treatment(signs, "cancelled", "hidden; magnitudes alone are decoded"),
        )
    return (
        Treatment(indices, "enumerated", "hidden; found from the encodings of several rounds, else nothing is decoded"),
        Treatment(coefficients, "optimised", "hidden; fitted to the encodings, if there are enough of them"),
    )


decodes(MixUp, Decoder(undo_mixing, _treat))
decodes(InstaHide, Decoder(undo_mixing, _treat, smooth=False))


def _granted(granted: Tree, encodings: Tensor, records: int, part: MixUp) -> tuple[Tensor, Tensor]:
    """The granted indices, and the coefficients: granted, fitted, or under signs guessed from soft labels."""
    indices = granted["indices"]
    if int(indices.max()) >= records:
        raise ObservationError(
            f"encodings hold records up to number {int(indices.max())}, {records} are observed",
            where="adaptive",
            remedy="observe every record of the client",
        )
    if "coefficients" in granted:
        return indices, granted["coefficients"]
    if isinstance(part, InstaHide):
        labels = granted.get("labels")
        soft = labels if labels is not None and labels.is_floating_point() else None
        return indices, guessed_coefficients(indices, soft, records, part)
    return indices, fitted_coefficients(encodings, indices, records, part)
