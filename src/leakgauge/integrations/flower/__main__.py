"""``python -m leakgauge.integrations.flower``: the folder that an operator puts on PYTHONPATH."""

from leakgauge.integrations.flower.node import HOOK

print(HOOK)
