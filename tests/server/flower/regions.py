"""Phones over HTTP for tests of a federation in several processes: few, and with keyed bits."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from nextapp.phone import Client, ServerError
from nextapp.phone.core import PhoneCore
from nextapp.privacy import requested_mechanism
from nextapp.privacy.tokens import MESSAGE, Token, public_key
from nextapp.randomness import KeyedBits
from nextapp.server.vault import Vault
from nextapp.wire import Broadcast, Report

N_APPS = 12
APPS = tuple(f"app-{number:04d}" for number in range(N_APPS))
SETTINGS = {
    "learn": "seqmf",
    "mechanism": "harmony",
    "epsilon": 2.0,
    "clip": 1.0,
    "dim": 4,
    "rate": 0.05,
    "goal": 10,
    "grace": 0.0,
    "minimum": 4,
    "deadline": 600.0,
}


class Region:
    """The phones of one gateway or server, enrolled there with a code from its vault."""

    def __init__(self, url: str, data: Path, numbers: range, ca: Path | None = None) -> None:
        self.url, self.numbers, self.ca = url, numbers, ca
        vault = Vault(data / "vault.sqlite", busy_seconds=30.0)
        code = vault.devices.issue_code(uses=len(numbers), expires=time.time() + 3600)
        vault.close()
        self.clients = {number: Client(url, ca=ca) for number in numbers}
        self.secrets = {number: client.enrol(code) for number, client in self.clients.items()}
        self.tokens: dict[int, list[Token]] = {number: [] for number in numbers}

    def broadcast(self, round_: int, seconds: float = 240.0) -> Broadcast:
        """The broadcast of a round, once it is handed out."""
        give_up = time.monotonic() + seconds
        seen = "nothing"
        while time.monotonic() < give_up:
            try:
                with Client(self.url, ca=self.ca) as client:
                    broadcast = Broadcast.from_bytes(client.broadcast())
                if broadcast.round == round_:
                    return broadcast
                seen = f"round {broadcast.round}"
            except ServerError as error:
                seen = str(error)
            time.sleep(0.2)
        raise AssertionError(f"no round {round_} at {self.url} in {seconds} s; seen: {seen}")

    def report(self, broadcast: Broadcast) -> list[Report]:
        """Every phone sends its report; each is durable when this returns."""
        sent = []
        for number, client in self.clients.items():
            phone = PhoneCore()
            for when, app in enumerate(np.random.default_rng(number).integers(0, N_APPS, 25)):
                phone.observe(int(app), float(when))
            phone.take(broadcast)
            asked, bits = requested_mechanism(broadcast), KeyedBits(3, number, broadcast.round)
            token = self.token(number, broadcast)
            report = asked.encode(phone.answer(), bits, broadcast.round, token.coins)
            client.submit(report.to_bytes(), token.text)
            client.close()
            sent.append(report)
        return sent

    def token(self, number: int, broadcast: Broadcast) -> Token:
        """The phone's next token of this region; all of a key are asked for at once."""
        if not self.tokens[number]:
            secret = self.secrets[number]
            region = secret.partition(".")[0]
            key = [key for key in broadcast.keys if key.region == region][-1]
            public = public_key(key)
            blindings = [public.new_blinding(MESSAGE) for _ in range(key.tokens)]
            blinded = [public.blind(each) for each in blindings]
            signed = self.clients[number].sign(secret, key.id, blinded)
            self.tokens[number] = [
                Token.of(key, *pair) for pair in zip(blindings, signed, strict=True)
            ]
        return self.tokens[number].pop()
