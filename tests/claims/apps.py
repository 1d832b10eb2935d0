"""Small apps of which it is known what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

PROJECT = """\
[tool.flwr.app.components]
serverapp = "app.server:app"
clientapp = "app.client:app"
[tool.flwr.app.config]
num-server-rounds = {rounds}
clip = 1.0
"""

FAULTY = """\
import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod as Private
from torch import nn

np.random.seed(0)
SENSITIVITY = 1e-4
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
app = ClientApp(mods=[Private(1.0, SENSITIVITY, epsilon=2 * 5.0, delta=1e-5)])


@app.train()
def fit(message, context):
    metrics = MetricRecord({"num-examples": len(context.data)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=message)


@app.evaluate()
def test(message, context):
    raise SystemExit("an app that is read must not run")


raise SystemExit("an app that is read must not run")
"""

SOUND = """\
from flwr.app import MetricRecord
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4))
app = ClientApp()


@app.train(mods=[LocalDpMod(clipping_norm=1.0, sensitivity=2.0, epsilon=0.9, delta=1e-5)])
def fit(message, context):
    return MetricRecord({"num-examples": 1})


@app.evaluate()
def test(message, context):
    return MetricRecord({"num-examples": 1})
"""

SERVER = """\
from flwr.serverapp.strategy import {wrapper}, FedAvg


def main(grid, context):
    clip = float(context.run_config["clip"])
    strategy = {wrapper}(FedAvg(), 1.0, {arguments})
    strategy.start(grid=grid, num_rounds=int(context.run_config["num-server-rounds"]))
"""


def write_app(folder: Path, client: str, *, server: str = "", rounds: int = 1) -> Path:
    (folder / "app").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT.format(rounds=rounds))
    (folder / "app" / "client.py").write_text(client)
    if server:
        (folder / "app" / "server.py").write_text(server)
    return folder


def write_job(folder: Path, filters: list[tuple[str, dict[str, object]]], rounds: int = 2) -> Path:
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    entries = [{"path": path, "args": args} for path, args in filters]
    client = {"format_version": 2, "task_result_filters": [{"tasks": ["train"], "filters": entries}]}
    (config / "config_fed_client.json").write_text(json.dumps(client))
    server = {
        "workflows": [{"id": "w", "path": "nvflare.app_common.workflows.fedavg.FedAvg", "args": {"num_rounds": rounds}}]
    }
    (config / "config_fed_server.json").write_text(json.dumps(server))
    return folder
