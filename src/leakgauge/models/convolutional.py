"""The convolutional networks of the papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from leakgauge.expr import register
from leakgauge.models.base import Network, at_least, sequence
from leakgauge.models.init import lecun_normal, uniform
from leakgauge.types import Domain


@register("model", "dlg_lenet")
@dataclass(frozen=True, repr=False)
class DlgLeNet(Network):
    """DLG's LeNet: three 5x5 convolutions of 12 channels with sigmoids, then one linear layer.

    Strides 2, 2, 1 and padding 2, so 588 features on 28x28 and 768 on 32x32; every weight and bias from
    U(-0.5, 0.5), much wider than torch's default. Sigmoids are smooth, so the update can be
    differentiated twice everywhere. Images of any size.

    References:
        Zhu, Liu and Han, Deep Leakage from Gradients, 2019. https://arxiv.org/abs/1906.08935
    """

    smallest: ClassVar[int] = 1

    def network(self, domain: Domain) -> nn.Module:
        channels, height, width = self.images(domain)
        features = 12 * -(-height // 4) * -(-width // 4)  # two strides of 2, each rounding up
        model = sequence(
            ("conv1", nn.Conv2d(channels, 12, 5, stride=2, padding=2)),
            ("sigmoid1", nn.Sigmoid()),
            ("conv2", nn.Conv2d(12, 12, 5, stride=2, padding=2)),
            ("sigmoid2", nn.Sigmoid()),
            ("conv3", nn.Conv2d(12, 12, 5, stride=1, padding=2)),
            ("sigmoid3", nn.Sigmoid()),
            ("flatten", nn.Flatten()),
            ("linear", nn.Linear(features, domain.classes)),
        )
        return uniform(model, 0.5)


@register("model", "bayes_cnn")
@dataclass(frozen=True, repr=False)
class BayesCnn(Network):
    """The CNN of the Bayesian framework: 32 and 64 channels, average pools, a layer of 100.

    3x3 convolutions that keep the size, ReLU, average pools of 2; 333,526 parameters on 1x28x28 and
    430,102 on 3x32x32. Initialised as Flax does (:func:`~leakgauge.models.init.lecun_normal`). Flax
    flattens channels last and we channels first; under this initialisation that permutes exchangeable
    columns. Images of at least 4x4.

    References:
        Balunović, Dimitrov, Staab and Vechev, Bayesian Framework for Gradient Leakage, 2022.
        https://arxiv.org/abs/2111.04706
    """

    smallest: ClassVar[int] = 4

    def network(self, domain: Domain) -> nn.Module:
        channels, height, width = self.images(domain)
        model = sequence(
            ("conv1", nn.Conv2d(channels, 32, 3, padding=1)),
            ("relu1", nn.ReLU()),
            ("pool1", nn.AvgPool2d(2)),
            ("conv2", nn.Conv2d(32, 64, 3, padding=1)),
            ("relu2", nn.ReLU()),
            ("pool2", nn.AvgPool2d(2)),
            ("flatten", nn.Flatten()),
            ("linear1", nn.Linear(64 * (height // 4) * (width // 4), 100)),
            ("relu3", nn.ReLU()),
            ("linear2", nn.Linear(100, domain.classes)),
        )
        return lecun_normal(model)


@register("model", "convbig")
@dataclass(frozen=True, repr=False)
class ConvBig(Network):
    """The network on which the Bayesian framework breaks Soteria: two convolutions, three linear layers.

    3x3 with 32 channels, then 1x1 with 64 channels *and padding 1* (the border is only the bias), each
    with ReLU and an average pool of 2; then 5184 → 2000 → 1000 → 10 on 3x32x32. Torch's default
    initialisation. According to the paper the defended layer is ``linear1``; the released code defends ``linear2``.
    Images of at least 2x2.

    References:
        Balunović, Dimitrov, Staab and Vechev, Bayesian Framework for Gradient Leakage, 2022, Table 3.
        https://arxiv.org/abs/2111.04706
    """

    smallest: ClassVar[int] = 2

    def network(self, domain: Domain) -> nn.Module:
        channels, height, width = self.images(domain)
        features = 64 * ((height // 2 + 2) // 2) * ((width // 2 + 2) // 2)
        return sequence(
            ("conv1", nn.Conv2d(channels, 32, 3, padding=1)),
            ("relu1", nn.ReLU()),
            ("pool1", nn.AvgPool2d(2)),
            ("conv2", nn.Conv2d(32, 64, 1, padding=1)),
            ("relu2", nn.ReLU()),
            ("pool2", nn.AvgPool2d(2)),
            ("flatten", nn.Flatten()),
            ("linear1", nn.Linear(features, 2000)),
            ("relu3", nn.ReLU()),
            ("linear2", nn.Linear(2000, 1000)),
            ("relu4", nn.ReLU()),
            ("linear3", nn.Linear(1000, domain.classes)),
        )


@register("model", "convnet64")
@dataclass(frozen=True, repr=False)
class ConvNet64(Network):
    """The ConvNet of Inverting Gradients and ATS: eight 3x3 convolutions with batch norm and ReLU.

    In units of ``width = 64``: 1, 2, 2, 4, 4, 4, max-pool 3, 4, 4, max-pool 3, linear; 2,904,970
    parameters on 3x32x32. The paper's table lists a ninth convolution of width 4 before the second pool;
    the released code gives two layers the same name, so only eight exist, and the published results are for
    the eight. Torch's default initialisation. Images of at least 9x9.

    References:
        Geiping, Bauermeister, Dröge and Moeller, Inverting Gradients, 2020. https://arxiv.org/abs/2003.14053
        Gao et al., Privacy-preserving Collaborative Learning with Automatic Transformation Search, 2021.
    """

    smallest: ClassVar[int] = 9
    width: int = 64

    def network(self, domain: Domain) -> nn.Module:
        at_least(self, width=self.width)
        channels, height, width = self.images(domain)
        layers: list[tuple[str, nn.Module]] = []
        before = channels
        for i, factor in enumerate((1, 2, 2, 4, 4, 4, 4, 4)):
            after = factor * self.width
            layers += [
                (f"conv{i}", nn.Conv2d(before, after, 3, padding=1)),
                (f"bn{i}", nn.BatchNorm2d(after)),
                (f"relu{i}", nn.ReLU()),
            ]
            before = after
            if i in (5, 7):
                layers.append((f"pool{i // 6}", nn.MaxPool2d(3)))
        features = before * (height // 3 // 3) * (width // 3 // 3)
        return sequence(*layers, ("flatten", nn.Flatten()), ("linear", nn.Linear(features, domain.classes)))


@register("model", "cnn_13700")
@dataclass(frozen=True, repr=False)
class Cnn13700(Network):
    """A CNN with exactly 13,700 parameters on 1x28x28 and ten classes.

    5x5 with 6 channels, ReLU, average pool 2, 5x5 with 10 channels, ReLU, average pool 2,
    490 → 24 → 10. **The architecture is ours**: the paper says only "a simplified neural network model
    consisting of 13,700 parameters". What matters is that number, the dimension of the noise.
    Torch's default initialisation. Images of at least 4x4.

    References:
        Biswas et al., Bayes' capacity as a measure for reconstruction attacks in federated learning, 2024.
    """

    smallest: ClassVar[int] = 4

    def network(self, domain: Domain) -> nn.Module:
        channels, height, width = self.images(domain)
        return sequence(
            ("conv1", nn.Conv2d(channels, 6, 5, padding=2)),
            ("relu1", nn.ReLU()),
            ("pool1", nn.AvgPool2d(2)),
            ("conv2", nn.Conv2d(6, 10, 5, padding=2)),
            ("relu2", nn.ReLU()),
            ("pool2", nn.AvgPool2d(2)),
            ("flatten", nn.Flatten()),
            ("linear1", nn.Linear(10 * (height // 4) * (width // 4), 24)),
            ("relu3", nn.ReLU()),
            ("linear2", nn.Linear(24, domain.classes)),
        )


@register("model", "lenet5")
@dataclass(frozen=True, repr=False)
class LeNet5(Network):
    """LeNet-5 as it is used today, with ReLU and max pools: the usual small CNN of federated learning on MNIST.

    5x5 with 6 channels and padding 2, pool 2, 5x5 with 16 channels, pool 2, then 400 → 120 → 84 → 10; 61,706
    parameters on 1x28x28. The original has scaled tanh, trained averages and radial basis functions at its end.
    Torch's default initialisation. Images of at least 12x12.

    References:
        LeCun, Bottou, Bengio and Haffner, Gradient-Based Learning Applied to Document Recognition, 1998.
    """

    smallest: ClassVar[int] = 12

    def network(self, domain: Domain) -> nn.Module:
        channels, height, width = self.images(domain)
        features = 16 * ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
        return sequence(
            ("conv1", nn.Conv2d(channels, 6, 5, padding=2)),
            ("relu1", nn.ReLU()),
            ("pool1", nn.MaxPool2d(2)),
            ("conv2", nn.Conv2d(6, 16, 5)),
            ("relu2", nn.ReLU()),
            ("pool2", nn.MaxPool2d(2)),
            ("flatten", nn.Flatten()),
            ("linear1", nn.Linear(features, 120)),
            ("relu3", nn.ReLU()),
            ("linear2", nn.Linear(120, 84)),
            ("relu4", nn.ReLU()),
            ("linear3", nn.Linear(84, domain.classes)),
        )
