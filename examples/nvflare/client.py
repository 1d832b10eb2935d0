"""A stock client: it knows nothing of leakgauge's filters."""

import nvflare.client as flare
from clinic_net import build, train

flare.init()
while flare.is_running():
    received = flare.receive()
    if received is None:
        break
    model = build()
    model.load_state_dict(received.params)
    train(model, flare.get_site_name())
    flare.send(flare.FLModel(params=model.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": 1}))
