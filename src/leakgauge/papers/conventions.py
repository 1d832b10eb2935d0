"""The papers' own metrics: why a number of theirs is not one of ours. Everywhere else images live in [0, 1].

| paper | space | PSNR |
|---|---|---|
| Bayes | attack in normalised space, unboxed | de-normalised, range 1, **not clipped** |
| GradAttack | normalised space | range = the target's own maximum less its minimum, in normalised space |
| LRP (from GGL) | images in [−1, 1] | **peak 1**: 6.02 dB below that of the same images in [0, 1]; MSE four times |
| inverting gradients | normalised space | clipped to [0, 1], range 1: as everywhere here |

LPIPS is by VGG in GradAttack, by VGG and by AlexNet in LRP. GradAttack feeds it normalised pixels, which leave the
[−1, 1] that it was fitted to, and takes for every reconstruction the target nearest to it. Ours gets pixels in range
and one target each, so that printed numbers of GradAttack and ours differ by more than the attack does.
"""

from __future__ import annotations

from torch import Tensor

from leakgauge.types import Records

MNIST_MEAN, MNIST_STD = 0.1307, 0.3081
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
Constant = float | tuple[float, ...]


def normalised(records: Records, mean: Constant = MNIST_MEAN, std: Constant = MNIST_STD) -> Records:
    """Records as an attack in normalised space sees them."""
    inputs = (records.inputs - _along(mean, records.inputs)) / _along(std, records.inputs)
    return Records(inputs, records.labels, records.domain)


def denormalised(inputs: Tensor, mean: Constant = MNIST_MEAN, std: Constant = MNIST_STD) -> Tensor:
    """Images in [0, 1] again, where the attack left them there."""
    return inputs * _along(std, inputs) + _along(mean, inputs)


def unclipped_psnr(reconstruction: Tensor, truth: Tensor, std: Constant = MNIST_STD) -> Tensor:
    """The Bayes paper's PSNR of images in normalised space: de-normalised, data range 1, not clipped."""
    error = ((reconstruction.double() - truth.double()) * _along(std, truth.double())).square().flatten(1).mean(1)
    return -10 * error.log10()


def target_range_psnr(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """GradAttack's PSNR: in normalised space, with the target's own range for the peak."""
    flat = truth.double().flatten(1)
    error = (reconstruction.double().flatten(1) - flat).square().mean(1)
    return 20 * (flat.amax(1) - flat.amin(1)).log10() - 10 * error.log10()


def signed_mse(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """The MSE of GGL and of the LRP paper's Table 3: of images stretched to [−1, 1], four times ours."""
    return 4 * (reconstruction.double() - truth.double()).square().flatten(1).mean(1)


def signed_psnr(reconstruction: Tensor, truth: Tensor) -> Tensor:
    """Their PSNR: peak 1 although the range is 2, ``20 log₁₀ 2 = 6.02`` dB below ours."""
    return -10 * signed_mse(reconstruction, truth).log10()


def _along(value: Constant, like: Tensor) -> Tensor:
    """Constants per channel, of images ``[…, C, H, W]``."""
    return like.new_tensor(value if isinstance(value, tuple) else (value,)).view(-1, 1, 1)
