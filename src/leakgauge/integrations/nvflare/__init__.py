"""NVFlare: remember the global model, then capture, defend and gate what a client sends back; data and result filters.

    recipe.add_client_input_filter(Remember(), tasks=["train"])               # task data: the weights of the round
    recipe.add_client_output_filter(Defend("clip(norm=1.0) | gaussian(std=0.1)"), tasks=["train"])
    recipe.add_client_output_filter(Capture("/var/lib/captures"), tasks=["train"])

Filters act in the order in which they are added: what is captured last is what leaves. A site switches them on for
every job in its ``local/privacy.json``. ``leakgauge inspect --folder`` reads captures, as it reads Flower's.

Needs ``leakgauge[nvflare]``.
"""

from leakgauge.errors import MissingExtraError

try:
    import nvflare  # noqa: F401
except ImportError:
    raise MissingExtraError(
        "the package nvflare is not installed", where="nvflare", remedy="pip install 'leakgauge[nvflare]'"
    ) from None

from leakgauge.integrations.nvflare.capture import Capture
from leakgauge.integrations.nvflare.defend import Defend
from leakgauge.integrations.nvflare.gate import Gate
from leakgauge.integrations.nvflare.remember import Remember

__all__ = ["Capture", "Defend", "Gate", "Remember"]
