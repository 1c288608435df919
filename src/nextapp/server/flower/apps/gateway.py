"""The ClientApp: hands letters to the vault of the gateway on the same machine.

Flower starts a process for each message, so nothing is kept here: all state is in the vault, which
the gateway that serves phones has open at the same time.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from nextapp.server.flower.apps.parcels import answer_message, letter_in
from nextapp.server.flower.messages import answer, gateway_identity
from nextapp.server.vault import Vault


def _answered(message: Message, context: Context) -> Message:
    data = Path(str(context.node_config["data"]))
    vault = Vault(data / "vault.sqlite", busy_seconds=30.0)
    try:
        return answer_message(answer(letter_in(message), vault, gateway_identity(data)), message)
    finally:
        vault.close()


app = ClientApp()
app.train("open")(_answered)
app.query("count")(_answered)
app.train("close")(_answered)
