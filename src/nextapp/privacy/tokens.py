"""Tokens: a phone's right to send one report, signed by a server that cannot recognise them.

A token is a random number of the phone with a blind signature of it: who signs knows the phone and
not the token, who takes the report sees the token and not the phone.

Blind RSA signatures (RFC 9474, RSABSSA-SHA384-PSS-Randomized), with the standard library alone:

    M = EMSA-PSS(prefix ‖ message; salt)   the encoded message, a number below n
    z = M r^e mod n                        sent; uniform for a random r, for M coprime to n
    y = z^d mod n                          the signer's answer
    s = y r^-1 mod n                       the signature: s = M^d mod n

The signer sees z and y; whoever checks sees the message and s. Every pair (z, s) is as likely as
any other, so nothing links the two. `tests/vectors/blind_signatures.json` has the vector of the RFC
and those of another implementation.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from nextapp.randomness import TokenCoins
from nextapp.wire import TokenKey

MESSAGE = b"nextapp token"
"""What all tokens sign, behind a random number of their own."""

E = 65_537
PREFIX_BYTES = 32
SALT_BYTES = 48
_HASH_BYTES = 48
_TRAILER = b"\xbc"
_TEXT = re.compile("([a-z0-9]{1,16}-[0-9a-f]{32})[.]([A-Za-z0-9_-]{384})")


class BadSignature(ValueError):
    """A signature that is not one of this message by this key."""


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


# --- blind signatures ---------------------------------------------------------------------------


class Blinding(NamedTuple):
    """What must be remembered, and kept secret, between asking for a signature and having it.

    ``prepared`` is the message behind its random prefix. The same blinding asks for the same
    signature again.
    """

    prepared: bytes
    salt: bytes
    factor: int

    def to_bytes(self) -> bytes:
        """Salt, length of the prepared message in 2 bytes, that message, factor."""
        factor = self.factor.to_bytes(-(-self.factor.bit_length() // 8))
        return self.salt + len(self.prepared).to_bytes(2) + self.prepared + factor

    @classmethod
    def from_bytes(cls, data: bytes) -> Blinding:
        start = SALT_BYTES + 2
        stop = start + int.from_bytes(data[SALT_BYTES:start])
        return cls(data[start:stop], data[:SALT_BYTES], int.from_bytes(data[stop:]))


@dataclass(frozen=True)
class PublicKey:
    """The key that checks, by its modulus n; the exponent is 65,537."""

    n: int

    def __post_init__(self) -> None:
        if self.n.bit_length() < 1024 or self.n.bit_length() % 8 or self.n % 2 == 0:
            raise ValueError(
                f"a modulus must be odd and have a whole number of bytes, 128 or more; got "
                f"{self.n.bit_length()} bits."
            )

    @property
    def n_bytes(self) -> int:
        """Length of the modulus, of a signature and of all that is sent for one."""
        return self.n.bit_length() // 8

    def new_blinding(self, message: bytes) -> Blinding:
        """A fresh one, by the operating system's random numbers.

        Drawn again until M has no factor in common with n: the blinding hides no such factor, and
        a signer could make n of many small primes to know each signature by those it shares.
        """
        while True:
            prepared = secrets.token_bytes(PREFIX_BYTES) + message
            blinding = Blinding(prepared, secrets.token_bytes(SALT_BYTES), _coprime(self.n))
            if math.gcd(self._encoded(blinding), self.n) == 1:
                return blinding

    def blind(self, blinding: Blinding) -> bytes:
        """What is sent to the signer."""
        z = self._encoded(blinding) * pow(blinding.factor, E, self.n) % self.n
        return z.to_bytes(self.n_bytes)

    def unblind(self, blinding: Blinding, answer: bytes) -> bytes:
        """The signature in the signer's answer; `BadSignature` where it is none of this key."""
        y = self._number(answer)
        s = y * pow(blinding.factor, -1, self.n) % self.n
        signature = s.to_bytes(self.n_bytes)
        self.verify(blinding.prepared, signature)
        return signature

    def verify(self, prepared: bytes, signature: bytes) -> None:
        """Raise `BadSignature` unless this signs the prepared message.

        A signature has exactly the length of the modulus and is below it, so that no other bytes
        pass for the same one: s + n is refused.
        """
        n_bits = self.n.bit_length() - 1
        M = pow(self._number(signature), E, self.n)
        encoded = M.to_bytes((n_bits + 7) // 8) if M.bit_length() <= n_bits else b""
        n_masked = len(encoded) - _HASH_BYTES - len(_TRAILER)
        digest = encoded[n_masked : n_masked + _HASH_BYTES]
        block = _mask(digest, n_masked, n_bits, encoded[:n_masked]) if encoded else b""
        salt = block[-SALT_BYTES:]
        if not encoded or encode(prepared, salt, n_bits) != encoded:
            raise BadSignature("the signature is not one of this message by this key.")

    def _encoded(self, blinding: Blinding) -> int:
        """M."""
        return int.from_bytes(encode(blinding.prepared, blinding.salt, self.n.bit_length() - 1))

    def _number(self, data: bytes) -> int:
        number = int.from_bytes(data)
        if len(data) != self.n_bytes or number >= self.n:
            raise BadSignature(f"a number of this key has {self.n_bytes} bytes and is below it.")
        return number


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """The key that signs, by the two primes of its modulus."""

    p: int
    q: int

    @cached_property
    def public(self) -> PublicKey:
        return PublicKey(self.p * self.q)

    @cached_property
    def _parts(self) -> tuple[int, int, int]:
        """d mod p − 1, d mod q − 1, q^-1 mod p: by remainders signing is 4 times faster."""
        d = pow(E, -1, math.lcm(self.p - 1, self.q - 1))
        return d % (self.p - 1), d % (self.q - 1), pow(self.q, -1, self.p)

    def sign(self, blinded: bytes) -> bytes:
        """The answer to what somebody has blinded.

        It is blinded once more for the computation, since `pow` takes longer for some numbers than
        for others; and checked, since an answer with one wrong half would give the primes away.
        """
        public = self.public
        z = public._number(blinded)
        r = _coprime(public.n)
        at_p, at_q, q_inverse = self._parts
        hidden = z * pow(r, E, public.n) % public.n
        y_p, y_q = pow(hidden, at_p, self.p), pow(hidden, at_q, self.q)
        y = y_q + self.q * ((y_p - y_q) * q_inverse % self.p)
        y = y * pow(r, -1, public.n) % public.n
        if pow(y, E, public.n) != z:
            raise ArithmeticError("a signature came out wrong: this machine computes wrongly.")
        return y.to_bytes(public.n_bytes)


def encode(prepared: bytes, salt: bytes, n_bits: int) -> bytes:
    """EMSA-PSS with SHA-384 and MGF1 (RFC 8017, 9.1.1): a number of `n_bits` bits at most."""
    hashed = hashlib.sha384(prepared).digest()
    digest = hashlib.sha384(bytes(8) + hashed + salt).digest()
    n_masked = (n_bits + 7) // 8 - _HASH_BYTES - len(_TRAILER)
    block = (b"\x01" + salt).rjust(n_masked, b"\0")
    return _mask(digest, n_masked, n_bits, block) + digest + _TRAILER


def _mask(digest: bytes, n_masked: int, n_bits: int, block: bytes) -> bytes:
    """The block XOR its mask, without the bits that a number of `n_bits` has no room for."""
    parts = range(-(-n_masked // _HASH_BYTES))
    mask = b"".join(hashlib.sha384(digest + part.to_bytes(4)).digest() for part in parts)
    masked = int.from_bytes(block) ^ int.from_bytes(mask[:n_masked])
    room = 8 * n_masked - -n_bits % 8
    return (masked & (1 << room) - 1).to_bytes(n_masked)


def _coprime(n: int) -> int:
    """A random number below n that can be divided by; any other would be a factor of n."""
    while True:
        r = 1 + secrets.randbelow(n - 1)
        if math.gcd(r, n) == 1:
            return r
