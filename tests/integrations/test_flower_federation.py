"""The example on a real SuperLink with two SuperNodes, loopback only; all that is started is stopped by its id."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from leakgauge.attacks import analytic
from leakgauge.inspect import folder_of, inspect
from leakgauge.integrations.flower.node import HOOK
from leakgauge.storage.states import read_state
from leakgauge.types import Domain, Records

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
SOURCES = Path(__file__).parents[2] / "src"
STOCK = ("mods=[Capture()]", "mods=[]")
SERVER = "strategy = FedAvg(fraction_evaluate=0.0)"


def loaded(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["app", "node"])
def test_a_real_federation_is_captured_and_its_records_recovered(way: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("flwr.app", reason="needs leakgauge[flower]")
    app, server, clients = tmp_path / "app", tmp_path / "server", tmp_path / "clients"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__"))
    path = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
    node = {"LEAKGAUGE_CAPTURE": str(clients), "PYTHONPATH": path}
    if way == "node":  # the app knows nothing of leakgauge; the operator of the node does
        edited(app / "clinic" / "client_app.py", *STOCK)
        node["PYTHONPATH"] = os.pathsep.join([str(HOOK), path])
    edited(app / "clinic" / "server_app.py", SERVER, f"{SERVER}\n    strategy = captured(strategy, {str(server)!r})")
    edited(
        app / "clinic" / "server_app.py",
        "from clinic.task import build\n",
        "from clinic.task import build\nfrom leakgauge.integrations.flower import captured\n",
    )
    federation = loaded("federation", EXAMPLE / "federation.py")
    federation.run(app, tmp_path / "home", server={"PYTHONPATH": path}, node=node, rounds=1)

    there = {file.name: read_state(file) for file in server.rglob("*client[0-9]*.safetensors")}
    here = {file.name: read_state(file) for file in clients.rglob("*client[0-9]*.safetensors")}
    assert sorted(there) == sorted(here)
    assert len(here) == 2
    for name, state in here.items():
        assert state.metadata == there[name].metadata
        assert all(torch.equal(value, there[name].tensors[key]) for key, value in state.tensors.items())

    task = loaded("clinic_task", EXAMPLE / "clinic" / "task.py")
    inputs, labels = (torch.cat(both) for both in zip(task.records_of(0), task.records_of(1), strict=True))
    domain = Domain("image", (1, 28, 28), 10)
    captures, known = folder_of(server, task.build()), Records(inputs, labels, domain)
    findings = inspect(task.build(), domain, captures, known=known, attacks=[analytic()], draws=3)
    assert sorted(finding.psnr.index(max(finding.psnr)) for finding in findings) == [0, 1]
    assert all(max(finding.psnr) > 20 for finding in findings)


def test_the_examples_client_differs_from_a_stock_one_in_two_lines() -> None:
    lines = (EXAMPLE / "clinic" / "client_app.py").read_text().splitlines()
    assert len([line for line in lines if "leakgauge" in line or "Capture(" in line]) == 2
