"""What the numbers of an audit may depend on besides its plan."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping

import numpy as np
import torch

import leakgauge
from leakgauge.threads import one_thread


def environment() -> dict[str, str]:
    """Versions, the processor, and a fingerprint of its arithmetic."""
    return {
        "leakgauge": leakgauge.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
        "arithmetic": _arithmetic(),
    }


def _arithmetic() -> str:
    """A fingerprint of how this process rounds: settings such as ``ONEDNN_MAX_CPU_ISA`` change no name, but numbers."""
    generator = torch.Generator().manual_seed(0)
    image = torch.rand(2, 3, 16, 16, generator=generator).requires_grad_()
    kernel, matrix = torch.randn(8, 3, 5, 5, generator=generator), torch.randn(1152, 64, generator=generator)
    with one_thread():
        features = torch.nn.functional.conv2d(image, kernel).tanh().flatten(1)
        (gradient,) = torch.autograd.grad((features @ matrix).logsumexp(1).sum(), image)
    return hashlib.sha256(gradient.numpy().tobytes()).hexdigest()[:16]


def differences(theirs: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What differs between two environments, in words."""
    named = [f"{name} {theirs.get(name)}, here {value}" for name, value in here.items() if theirs.get(name) != value]
    return "; ".join(named) or "versions or CPU features differ"
