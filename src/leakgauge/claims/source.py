"""An app's folder, read and not run: its privacy settings, and what around them decides whether they hold."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from leakgauge.claims.facts import Facts, Placed, Scope
from leakgauge.claims.findings import Examined, Finding, refused
from leakgauge.claims.settings import KIND, Setting
from leakgauge.claims.values import UNKNOWN, Module, Program, named_by
from leakgauge.errors import DataError, LeakgaugeError
from leakgauge.expr import REGISTRY

PACKAGES = ("flwr", "nvflare", "opacus", "leakgauge")
IGNORED = ("site-packages", "node_modules", "__pycache__", "build", "dist")
LARGEST, MOST = 1 << 20, 2000
"""Bytes of one file, and files of one folder, that are read."""
DEEPEST, MOST_SETTINGS = 200, 500
"""How deep a setting may stand in others, and how many are examined: a file may hold any number."""

EXAMPLES = ("num-examples", "num_examples")
NUMPY_SEEDS = ("numpy.random.seed", "np.random.seed", "numpy.random.set_state", "flwr.common.seed_everything")
TORCH_SEEDS = (
    "torch.manual_seed",
    "torch.random.manual_seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "torch.set_rng_state",
    "torch.random.set_rng_state",
    "torch.default_generator.manual_seed",
)
BOTH_SEEDS = ("seed_everything", "set_seed", "set_all_seeds", "set_random_seed", "set_determinism")
"""Functions by these last names seed everything, by custom."""

GRID = {"grid", "initial_arrays"}
DEFAULT_ROUNDS = 3
"""Of ``start`` of Flower's strategies, if it is not told."""
HANDED_ON = "it is built somewhere else, with values that only running the app would give"
WRITE = "write the setting as an expression"


def python_files(folder: Path) -> Iterator[Path]:
    """The programs of a folder (or the one file), neither hidden ones nor those of installed packages."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
    for path in paths[:MOST]:
        parts = path.relative_to(folder).parts
        if not any(part in IGNORED or part.startswith(".") for part in parts) and path.is_file():
            yield path


def read_program(folder: Path) -> tuple[Program, list[str]]:
    """Every file of a folder as trees, and what could not be read."""
    modules, notes = {}, []
    for path in python_files(folder):
        name = path.relative_to(folder).as_posix() if path != folder else path.name
        try:
            if path.stat().st_size > LARGEST:
                raise DataError(f"is larger than {LARGEST:,} bytes", where=name)
            dotted = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            modules[dotted] = Module(dotted, name, ast.parse(path.read_bytes()))
        except (LeakgaugeError, SyntaxError, ValueError, RecursionError, MemoryError, OSError) as fault:
            notes.append(f"{name} is not read: {str(fault).splitlines()[0] if str(fault) else type(fault).__name__}")
    return Program(modules, _config(folder, notes)), notes


def _config(folder: Path, notes: list[str]) -> Mapping[str, Any]:
    path = folder / "pyproject.toml"
    if not path.is_file():
        return {}
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"larger than {LARGEST:,} bytes")
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        config = table.get("tool", {}).get("flwr", {}).get("app", {}).get("config", {})
        return dict(_flat(config))
    except (OSError, ValueError, AttributeError, RecursionError) as fault:  # a TOMLDecodeError is a ValueError
        notes.append(f"pyproject.toml is not read: {fault}")
        return {}


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def settings_of(program: Program) -> tuple[list[Placed], list[Examined]]:
    """Every setting that a program builds, with where and for what; and those that cannot be built as they are."""
    placed: list[Placed] = []
    others: list[Examined] = []
    for module in program.modules.values():
        for node, stack in _walk(module.tree, ()):
            where = module.where(node)
            if len(placed) + len(others) >= MOST_SETTINGS:
                more = Finding("values", "caution", f"over {MOST_SETTINGS} settings", "examine a part", where=where)
                return placed, [*others, Examined("the rest", where, (more,))]
            if (name := _setting_name(node, module)) is not None:
                try:
                    placed.append(_placed(name, node, where, _scope(node, stack, module, program), module, program))
                except (LeakgaugeError, TypeError, ValueError) as fault:
                    others.append(refused(name, where, fault))
            elif (name := _handed_on(node, stack, module)) is not None:
                others.append(Examined(name, where, (Finding("values", "caution", HANDED_ON, WRITE, where=where),)))
    return placed, others


def _handed_on(node: ast.AST, stack: tuple[ast.AST, ...], module: Module) -> str | None:
    """A setting's name that is not called where it stands, such as in ``partial(LocalDpMod, …)``."""
    if not isinstance(node, ast.Name | ast.Attribute) or (isinstance(stack[-1], ast.Attribute)):
        return None
    called = isinstance(stack[-1], ast.Call) and stack[-1].func is node
    called = called or node in module.aliases.values()  # examined where its other name is called
    dotted = module.dotted(node, aliases=False)
    name = dotted.rpartition(".")[2]
    known = dotted.partition(".")[0] in PACKAGES and "." in dotted and setting_named(name) is not None
    return name if known and not called and not name.endswith("_mod") else None


def _walk(node: ast.AST, stack: tuple[ast.AST, ...]) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """Every node with those that it stands in, outermost first."""
    todo = [(node, stack)]
    while todo:
        node, stack = todo.pop()
        yield node, stack
        if len(stack) < DEEPEST:
            todo.extend((child, (*stack, node)) for child in reversed(list(ast.iter_child_nodes(node))))


def _setting_name(node: ast.AST, module: Module) -> str | None:
    """The setting that a call builds, or that a bare name in a list of mods is."""
    if isinstance(node, ast.Call):
        dotted = module.dotted(node.func)
        name = dotted.rpartition(".")[2]
        if name not in REGISTRY[KIND] or name.endswith("_mod"):
            return None
        known = dotted.partition(".")[0] in PACKAGES
        method = name.startswith("make_private") and "." in dotted
        return name if known or method else None
    if isinstance(node, ast.Name | ast.Attribute):
        dotted = module.dotted(node, aliases=False)
        name = dotted.rpartition(".")[2]
        if name.endswith("_mod") and name in REGISTRY[KIND] and dotted.partition(".")[0] in PACKAGES:
            return name
    return None


def _placed(name: str, node: ast.AST, where: str, scope: Scope, module: Module, program: Program) -> Placed:
    maker: Any = REGISTRY[KIND][name]
    if not isinstance(node, ast.Call):
        return Placed(maker(), where, scope)
    fields = {field.name: field for field in dataclasses.fields(maker)}
    plain = list(itertools.takewhile(lambda argument: not isinstance(argument, ast.Starred), node.args))
    written = dict(zip(maker.order, plain, strict=False))  # what comes after *some may stand for any argument
    written.update({keyword.arg: keyword.value for keyword in node.keywords if keyword.arg})
    spread = len(plain) < len(node.args) or any(keyword.arg is None for keyword in node.keywords)
    values: dict[str, Any] = {}
    unread: list[str] = []
    for key, field in fields.items():
        if key == "accountant" and key in written:
            values[key] = None if _is_none(written[key]) else ast.unparse(written[key])[:80]
            continue
        optional = field.default is not dataclasses.MISSING
        if key not in written and optional and not spread:
            continue
        value = program.value(written.get(key), module)
        values[key] = None if value is UNKNOWN else value
        if value is UNKNOWN:
            unread.append(key)
    if "secure_mode" in fields:  # the engine's, and no argument of the call
        values["secure_mode"] = program.secure
    return Placed(maker(**values), where, scope, tuple(key for key in unread if key != "secure_mode"))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _scope(node: ast.AST, stack: tuple[ast.AST, ...], module: Module, program: Program) -> Scope:
    """Whether a setting is registered for every message of an app or for training, or built in each round."""
    for outer in reversed(stack):
        match outer:
            case ast.Call(func=func) if module.dotted(func).rpartition(".")[2] == "ClientApp":
                return "app"
            case ast.Call(func=ast.Attribute(attr="train")):
                return "train"
            case (
                ast.FunctionDef(name=name, decorator_list=decorators)
                | ast.AsyncFunctionDef(name=name, decorator_list=decorators)
            ) if not any(node is inner for d in decorators for inner in ast.walk(d)):
                if name in ("fit", "train") or any(_trains(d) for d in decorators):
                    return "round"
                break
    in_app = any((module.name, name) in program.given_to_apps for outer in stack for name in named_by(outer))
    return "app" if in_app else "train"


def _trains(decorator: ast.expr) -> bool:
    func = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(func, ast.Attribute) and func.attr == "train"


def facts_of(program: Program, placed: Iterable[Placed]) -> Facts:
    """What around the settings decides whether they hold."""
    seen_by = [(module, node) for module in program.modules.values() for node in ast.walk(module.tree)]
    calls = [(module, node, module.dotted(node.func)) for module, node in seen_by if isinstance(node, ast.Call)]
    weights = list(_weights(program, seen_by))
    rounds, unread_rounds = _rounds(program, calls)
    return Facts(
        read=True,
        rounds=rounds,
        unread_rounds=unread_rounds,
        numpy_seeds=_seeds(calls, NUMPY_SEEDS),
        torch_seeds=_seeds(calls, TORCH_SEEDS),
        scalars=tuple(module.where(node) for module, node, name in calls if _makes_scalar(module, node, name)),
        evaluates=tuple(module.where(node) for module, node in seen_by if _evaluates(node)),
        unequal_weights=tuple(where for where, value in weights if value is UNKNOWN),
        equal_weights=bool(weights) and len({str(value) for _, value in weights}) == 1 and weights[0][1] is not UNKNOWN,
        mods=frozenset(one.setting.expression_name for one in placed),
    )


def _seeds(calls: Iterable[tuple[Module, ast.Call, str]], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        module.where(node)
        for module, node, dotted in calls
        if dotted in names or dotted.rpartition(".")[2] in BOTH_SEEDS
    )


def _makes_scalar(module: Module, node: ast.Call, dotted: str) -> bool:
    """Whether a call makes an entry without dimensions: a counter of BatchNorm, or a parameter of one number."""
    last = dotted.rpartition(".")[2]
    if last.startswith(("BatchNorm", "SyncBatchNorm")):
        return not any(k.arg == "track_running_stats" and _is_false(k.value) for k in node.keywords)
    if last not in ("Parameter", "register_buffer"):
        return False
    inner = node.args[-1] if node.args else None
    match inner:
        case ast.Call(func=func, args=[ast.Constant() | ast.UnaryOp(), *_]) if module.dotted(func) == "torch.tensor":
            return True
        case ast.Call(func=func, args=[ast.Tuple(elts=[]) | ast.List(elts=[]), *_]):
            return module.dotted(func) in ("torch.zeros", "torch.ones", "torch.empty", "torch.randn", "torch.rand")
    return False


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _evaluates(node: ast.AST) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    targets = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    method = node.name == "evaluate" and bool(node.args.args) and node.args.args[0].arg == "self"
    return method or any(isinstance(t, ast.Attribute) and t.attr == "evaluate" for t in targets)


def _weights(program: Program, nodes: Sequence[tuple[Module, ast.AST]]) -> Iterator[tuple[str, Any]]:
    """Where clients state their number of examples, and the constant that it is, or UNKNOWN; evaluations do not count:
    they weigh metrics alone."""
    evaluating = {id(inner) for _, node in nodes if _evaluates(node) for inner in ast.walk(node)}
    for module, node in nodes:
        if id(node) in evaluating:
            continue
        for value in _stated(node):
            yield module.where(value), program.value(value, module)


def _stated(node: ast.AST) -> Iterator[ast.expr]:
    """The numbers of examples that one node states."""
    match node:
        case ast.Dict(keys=keys, values=values):
            yield from (
                v for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant) and k.value in EXAMPLES
            )
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=key))], value=value) if key in EXAMPLES:
            yield value
        case (
            ast.FunctionDef(name="fit", args=arguments, body=body)
            | ast.AsyncFunctionDef(name="fit", args=arguments, body=body)
        ) if arguments.args and arguments.args[0].arg == "self":
            for inner in (i for statement in body for i in ast.walk(statement)):
                match inner:
                    case ast.Return(value=ast.Tuple(elts=[_, count, _])):
                        yield count


def _rounds(program: Program, calls: Iterable[tuple[Module, ast.Call, str]]) -> tuple[int | None, str]:
    """The largest number of rounds, of what calls pass as such and the configuration's ``num-server-rounds``; and
    where a call passes what only running the app would give."""
    values, unread = [program.config.get("num-server-rounds")], ""
    for module, node, dotted in calls:
        passed = [program.value(argument, module) for argument in _passed_rounds(node, dotted)]
        values += passed
        if UNKNOWN in passed:
            unread = unread or module.where(node)
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0]
    return max(numbers, default=None), unread


def _passed_rounds(node: ast.Call, dotted: str) -> Iterator[ast.expr]:
    """What one call says of the number of rounds: ``num_rounds=…`` of any, and what Flower's take by its place."""
    named = [k.value for k in node.keywords if k.arg == "num_rounds"]
    last, keywords = dotted.rpartition(".")[2], {k.arg for k in node.keywords}
    if named:
        yield from named
    elif last == "start" and (keywords & GRID or any(isinstance(a, ast.Name) and a.id in GRID for a in node.args[:1])):
        third = node.args[2] if len(node.args) > 2 else None
        unread = None in keywords or any(isinstance(argument, ast.Starred) for argument in node.args)
        yield ast.Name("**") if unread else third or ast.Constant(DEFAULT_ROUNDS)
    elif last == "ServerConfig" and node.args:
        yield node.args[0]


def setting_named(name: str) -> type[Setting] | None:
    """The setting of one name."""
    maker: Any = REGISTRY[KIND].get(name)
    return maker if isinstance(maker, type) and issubclass(maker, Setting) else None
