"""A public yardstick: every built-in attack and defense, and anybody's own, on one fixed set of clients.

``leakgauge standings`` measures all rows; ``--defense`` and ``--attack`` add one of your own, measured alike.
"""

from leakgauge.standings.page import page
from leakgauge.standings.published import beside, published
from leakgauge.standings.rows import Row, Score, measured
from leakgauge.standings.running import gathered, run
from leakgauge.standings.set_ups import Client, Size, clients, planned

__all__ = [
    "Client",
    "Row",
    "Score",
    "Size",
    "beside",
    "clients",
    "gathered",
    "measured",
    "page",
    "planned",
    "published",
    "run",
]
