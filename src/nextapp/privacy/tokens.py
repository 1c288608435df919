"""Tokens: a phone's right to send one report, signed by a server that cannot recognise them.

A token is a random number of the phone with a blind signature of it (`blind_signatures`). Who signs
knows the phone and not the token; who takes the report sees the token and not the phone.
"""

from __future__ import annotations

import base64
import re
from typing import NamedTuple

from nextapp.privacy.blind_signatures import PREFIX_BYTES, BadSignature, Blinding, PublicKey
from nextapp.randomness import TokenCoins
from nextapp.wire import TokenKey

MESSAGE = b"nextapp token"
"""What all tokens sign, behind a random number of their own."""

SIGNATURE_BYTES = 256
_TEXT = re.compile("([a-z0-9]{1,16}-[0-9a-f]{32})[.]([A-Za-z0-9_-]{384})")


class Token(NamedTuple):
    """The key it is of, by its id; its random number; and the signature, which gives its coins."""

    key: str
    nonce: bytes
    signature: bytes

    @classmethod
    def of(cls, key: TokenKey, blinding: Blinding, answer: bytes) -> Token:
        """From what was blinded and the answer; `BadSignature` where that is not by this key."""
        signature = public_key(key).unblind(blinding, answer)
        return cls(key.id, blinding.prepared[:PREFIX_BYTES], signature)

    @classmethod
    def from_text(cls, text: str) -> Token:
        """The token that goes with a report; `BadSignature` where it is none."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise BadSignature("this is no token.")
        data = from_base64(match[2])
        return cls(match[1], data[:PREFIX_BYTES], data[PREFIX_BYTES:])

    @property
    def text(self) -> str:
        return f"{self.key}.{to_base64(self.nonce + self.signature)}"

    @property
    def coins(self) -> TokenCoins:
        return TokenCoins(self.signature)

    def check(self, key: PublicKey) -> None:
        """Raise `BadSignature` unless the key has signed it."""
        key.verify(self.nonce + MESSAGE, self.signature)


def public_key(key: TokenKey) -> PublicKey:
    return PublicKey(int(key.modulus, 16))


def to_base64(data: bytes) -> str:
    """Base64url without padding, as secrets and tokens are written."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
