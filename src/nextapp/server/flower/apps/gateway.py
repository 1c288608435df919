"""The ClientApp: hands letters to the vault of the gateway on the same machine.

Flower starts a process for each message, so nothing is kept here: all state is in the vault, which
the gateway that serves phones has open at the same time.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from nextapp.server.flower.apps.parcels import answer_message, letter_in
from nextapp.server.flower.messages import answer, gateway_identity, note_node_number
from nextapp.server.vault import Vault


def _answer_message(message: Message, context: Context) -> Message:
    data = Path(str(context.node_config["data"]))
    note_node_number(data, context.node_id)
    vault = Vault(data / "vault.sqlite", busy_seconds=30.0)
    try:
        return answer_message(answer(letter_in(message), vault, gateway_identity(data)), message)
    finally:
        vault.close()


app = ClientApp()
app.train("open")(_answer_message)
app.query("count")(_answer_message)
app.train("close")(_answer_message)
