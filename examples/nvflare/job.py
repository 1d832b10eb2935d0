"""Two sites train one round in NVFlare's simulator; filters capture what they send.

python job.py captures            # then: leakgauge inspect --folder captures --model clinic_net:build --shape 1,28,28
python job.py captures --gate     # every site attacks its own update first, and keeps it
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from clinic_net import Net
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe.sim_env import SimEnv

from leakgauge.integrations.nvflare import Capture, Gate, Remember

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="where the sites write what they send")
    parser.add_argument("--gate", action="store_true", help="attack every update before it is sent")
    parser.add_argument("--work", type=Path, help="where the simulator works; default: a temporary folder")
    chosen = parser.parse_args()
    recipe = FedAvgRecipe(name="clinic", model=Net(), min_clients=2, num_rounds=1, train_script=str(HERE / "client.py"))
    recipe.add_client_file(str(HERE / "clinic_net.py"))
    recipe.add_client_input_filter(Remember(), tasks=["train"])
    if chosen.gate:
        gate = Gate("clinic_net:build", "clinic_net:records", threshold=14.0)
        recipe.add_client_output_filter(gate, tasks=["train"])
    recipe.add_client_output_filter(Capture(str(chosen.folder.resolve())), tasks=["train"])
    with tempfile.TemporaryDirectory() as folder:
        work = chosen.work or Path(folder)
        recipe.run(SimEnv(num_clients=2, num_threads=2, workspace_root=str(work.resolve()), log_config="concise"))
    for path in sorted(chosen.folder.rglob("*.safetensors")):
        print(path)


if __name__ == "__main__":
    main()
