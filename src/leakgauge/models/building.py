"""Build a module from a name, an expression or the user's own code."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import nn

from leakgauge import expr
from leakgauge.errors import LeakgaugeError, ModelError, nearest
from leakgauge.models.base import Network
from leakgauge.types import Domain


def build(name: str | Network, domain: Domain, *, seed: int = 0, **options: Any) -> nn.Module:
    """Build a module from a name (``mlp``), an expression (``mlp(width=100)``) or ``package.module:factory``.

    Weights depend on ``seed`` alone, and the global random state is not changed. ``options`` are the
    arguments of a name or of the user's factory. The factory is called with ``domain`` if it has a parameter
    of that name, otherwise without arguments, and must return an ``nn.Module``; a path may also name an
    existing module, which is copied. A path imports the user's code.
    """
    with torch.random.fork_rng(devices=[]):
        # imported before the seed is set: an import that draws numbers would otherwise shift the first build
        imported = {path: _load(path) for path in expr.PATH.findall(name)} if isinstance(name, str) else {}
        # not torch.manual_seed, which would also reseed every accelerator
        torch.default_generator.manual_seed(seed)
        if isinstance(name, Network):
            return name.network(domain)
        if name in imported:
            return _users(name, imported[name], domain, options)
        if name.isidentifier():
            known = expr.names("model")
            if name not in known:
                raise ModelError(f"unknown model {name!r}", where="model", remedy=nearest(name, known))
            instance = _instance(name, known[name], options)
        elif options:
            raise ModelError(
                f"{name!r} already has arguments, and got also {', '.join(options)}",
                where="model",
                remedy="put all arguments into the expression",
            )
        else:
            instance = expr.parse(name, "model", where="model")
        return _network(name, instance, domain)


def _instance(name: str, maker: Any, options: dict[str, Any]) -> Any:
    try:
        inspect.signature(maker).bind(**options)
    except TypeError as fault:
        raise ModelError(
            f"{name}: {fault}",
            where="model",
            remedy=f"its arguments are {', '.join(inspect.signature(maker).parameters)}",
        ) from None
    return maker(**options)


def _network(name: str, instance: Any, domain: Domain) -> nn.Module:
    if isinstance(instance, Network):
        return instance.network(domain)
    if isinstance(instance, nn.Module):  # an expression that called the user's own class
        return instance
    raise ModelError(f"{name!r} is not a model but {instance!r}", where="model", remedy=_known())


def _load(path: str) -> Any:
    try:
        return expr.load(path, where="model")
    except LeakgaugeError:
        raise
    except Exception as fault:
        raise ModelError(
            f"its import raised {type(fault).__name__}: {fault}", where=path, remedy="fix the module"
        ) from fault


def _users(path: str, loaded: Any, domain: Domain, options: dict[str, Any]) -> nn.Module:
    if isinstance(loaded, nn.Module):
        return copy.deepcopy(loaded)
    try:
        if not callable(loaded):
            raise ModelError(
                f"is {type(loaded).__name__}", where=path, remedy="name a function that returns an nn.Module"
            )
        takes = "domain" in inspect.signature(loaded).parameters
        model = loaded(**options, **({"domain": domain} if takes else {}))
    except LeakgaugeError:
        raise
    except Exception as fault:
        raise ModelError(
            f"raised {type(fault).__name__}: {fault}",
            where=path,
            remedy="it is called without arguments, or with domain; fix it",
        ) from fault
    if not isinstance(model, nn.Module):
        raise ModelError(f"returned {type(model).__name__}", where=path, remedy="return an nn.Module")
    return model


def _known() -> str:
    return f"known: {', '.join(sorted(expr.names('model')))}"
