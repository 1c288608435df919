"""What Flower's own processes import: the coordinator's ServerApp and the gateways' ClientApp.

Flower starts a process for each message to a gateway, so nothing is kept there: all state is in the
vault, which the gateway that serves phones has open at the same time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from nextapp.server.flower.gateway_rounds import Answer, Driver, Letter, Pace, answer
from nextapp.server.flower.launching import SAID
from nextapp.server.folders import VAULT, create_or_resume, lock_folder
from nextapp.server.vault import Reduced, Round, Vault
from nextapp.wire import TokenKey


class GridPost:
    """Letters over a grid. An address is a node number; a message lives for `seconds`."""

    def __init__(self, grid: Grid, seconds: float) -> None:
        self._grid = grid
        self._seconds = seconds
        self._sent: dict[str, int] = {}

    def addresses(self) -> Collection[int]:
        return list(self._grid.get_node_ids())

    def send(self, address: int, letter: Letter) -> None:
        message = Message(
            RecordDict({"letter": ConfigRecord(letter.words())}),
            dst_node_id=address,
            message_type=f"query.{letter.kind}",
            ttl=self._seconds,
            group_id=str(letter.round.number),
        )
        for number in self._grid.push_messages([message]):
            self._sent[number] = address

    def answers(self) -> Iterable[tuple[int, Answer | str]]:
        if not self._sent:
            return
        for message in self._grid.pull_messages(list(self._sent)):
            address = self._sent.pop(message.metadata.reply_to_message_id, None)
            if address is not None:
                yield address, _answer_in(message)


def _answer_in(message: Message) -> Answer | str:
    if message.has_error():
        return f"a gateway did not answer: {message.error.reason} (code {message.error.code})."
    words: dict[str, Any] = dict(message.content.config_records["answer"])
    reduced, round = None, Round.of(words["round"])
    if "sum" in message.content.array_records:
        tally = message.content.array_records["sum"]["tally"].numpy()
        reduced = Reduced(round.number, round.n_reports, tally)
    keys = tuple(TokenKey(**each) for each in json.loads(words["keys"]))
    return Answer(words["gateway"], round, words["n_phones"], reduced, keys)


def _coordinate(grid: Grid, context: Context) -> None:
    """Run rounds from the checkpoint of the folder ``data`` on, until ``rounds`` have been."""
    config = context.run_config
    data, rounds = Path(str(config["data"])), int(config["rounds"])
    pace = Pace(int(config["gateways"]), float(config["poll"]), float(config["patience"]))
    with lock_folder(data, patience=60.0), (data / SAID).open("a", encoding="utf-8") as said:

        def say(words: str) -> None:
            print(words, flush=True)
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}", file=said, flush=True)

        skip_to = int(config["skip-to"]) or None
        resumed, settings = create_or_resume(data, {}, None, skip_to=skip_to)
        post = GridPost(grid, pace.patience)
        driver = Driver(resumed, settings.rules, post, pace, say=say)
        say(f"at round {resumed.round}, of {rounds or 'any number of'} rounds.")
        while not rounds or resumed.round < rounds:
            driver.run_round()


coordinator = ServerApp()
coordinator.main()(_coordinate)


def _answer_message(message: Message, context: Context) -> Message:
    """What the vault of the gateway on the same machine answers to a letter."""
    data = Path(str(context.node_config["data"]))
    letter = Letter.of(message.content.config_records["letter"])
    with closing(Vault(data / VAULT, busy_seconds=30.0)) as vault:
        found = answer(letter, vault, time.time())
    words: dict[str, str | float] = {
        "round": found.round.words,
        "gateway": found.gateway,
        "n_phones": found.n_phones,
        "keys": json.dumps([asdict(key) for key in found.keys]),
    }
    content = RecordDict({"answer": ConfigRecord(words)})
    if found.reduced is not None:
        content["sum"] = ArrayRecord({"tally": Array(found.reduced.tally)})
    return Message(content, reply_to=message)


gateway = ClientApp()
for kind in ("keys", "open", "count", "close"):
    gateway.query(kind)(_answer_message)
