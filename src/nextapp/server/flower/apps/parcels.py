"""Letters and answers as Flower's messages, and back."""

from __future__ import annotations

from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from nextapp.server.flower.messages import Answer, Close, Count, Letter, Open
from nextapp.server.vault import Reduced, Round, RoundRules

KINDS: dict[type, str] = {Open: "train.open", Count: "query.count", Close: "train.close"}


def letter_message(letter: Letter, node: int, seconds: float) -> Message:
    """A letter to the node with this number, which Flower drops after `seconds`."""
    round = letter.round
    words: dict[str, Any] = {
        "round": round.number,
        "opened": round.opened,
        "deadline": round.deadline,
        "extensions": round.extensions,
    }
    if isinstance(letter, Open):
        rules = letter.rules
        words |= {"goal": rules.goal, "minimum": rules.minimum, "seconds": rules.seconds}
        words["broadcast"] = letter.broadcast
    return Message(
        RecordDict({"letter": ConfigRecord(words)}),
        dst_node_id=node,
        message_type=KINDS[type(letter)],
        ttl=seconds,
        group_id=str(round.number),
    )


def letter_in(message: Message) -> Letter:
    words: dict[str, Any] = dict(message.content.config_records["letter"])
    round = Round(
        words["round"], words["opened"], words["deadline"], extensions=words["extensions"]
    )
    kind = message.metadata.message_type
    if kind == KINDS[Open]:
        rules = RoundRules(words["goal"], words["minimum"], words["seconds"])
        return Open(round, rules, words["broadcast"])
    return Close(round) if kind == KINDS[Close] else Count(round)


def answer_message(answer: Answer, reply_to: Message) -> Message:
    words: dict[str, Any] = {
        "gateway": answer.gateway,
        "n_reports": answer.n_reports,
        "closed": answer.closed,
        "round": -1 if answer.reduced is None else answer.reduced.round,
    }
    content = RecordDict({"answer": ConfigRecord(words)})
    if answer.reduced is not None:
        content["sum"] = ArrayRecord({"tally": Array(answer.reduced.tally)})
    return Message(content, reply_to=reply_to)


def answer_in(message: Message) -> Answer | str:
    """The answer, or why there is none."""
    if message.has_error():
        return f"a gateway did not answer: {message.error.reason} (code {message.error.code})."
    words: dict[str, Any] = dict(message.content.config_records["answer"])
    reduced = None
    if words["round"] >= 0:
        tally = message.content.array_records["sum"]["tally"].numpy()
        reduced = Reduced(words["round"], words["n_reports"], tally)
    return Answer(words["gateway"], words["n_reports"], words["closed"], reduced)
