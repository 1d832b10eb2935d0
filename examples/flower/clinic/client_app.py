"""A stock client but for two lines, which are marked."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clinic.task import build, records_of, train
from leakgauge.integrations.flower import Capture  # 1: added

app = ClientApp(mods=[Capture()])  # 2: was ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    model = build()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    inputs, labels = records_of(int(context.node_config.get("partition-id", 0)))
    loss = train(model, inputs, labels, float(context.run_config["lr"]))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(inputs)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=message)
