"""The ClientApp: hands letters to the vault of the gateway on the same machine.

Flower starts a process for each message, so nothing is kept here: all state is in the vault, which
the gateway that serves phones has open at the same time.
"""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from nextapp.server.flower.gateway_rounds import Letter, answer
from nextapp.server.flower.launching import note_node_number
from nextapp.server.vault import Vault


def _answer_message(message: Message, context: Context) -> Message:
    data = Path(str(context.node_config["data"]))
    note_node_number(data, context.node_id)
    kind = message.metadata.message_type.partition(".")[2]
    letter = Letter.of(kind, message.content.config_records["letter"])
    with closing(Vault(data / "vault.sqlite", busy_seconds=30.0)) as vault:
        found = answer(letter, vault, time.time())
    words: dict[str, str | float] = {
        **asdict(found.round),
        "gateway": found.gateway,
        "n_phones": found.n_phones,
        "keys": json.dumps([asdict(key) for key in found.keys]),
    }
    content = RecordDict({"answer": ConfigRecord(words)})
    if found.reduced is not None:
        content["sum"] = ArrayRecord({"tally": Array(found.reduced.tally)})
    return Message(content, reply_to=message)


app = ClientApp()
app.train("open")(_answer_message)
app.query("keys")(_answer_message)
app.query("count")(_answer_message)
app.train("close")(_answer_message)
