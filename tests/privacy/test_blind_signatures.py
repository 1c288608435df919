"""Blind signatures against the RFC's vector, another implementation's, and OpenSSL."""

import json
import math
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from nextapp.privacy.tokens import (
    BadSignature,
    Blinding,
    E,
    PrivateKey,
    PublicKey,
    encode,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "blind_signatures.json").read_text())[
    "vectors"
]
PSS = padding.PSS(padding.MGF1(hashes.SHA384()), 48)


@pytest.fixture(scope="module")
def keys():
    made = rsa.generate_private_key(E, 2048)
    numbers = made.private_numbers()
    return PrivateKey(numbers.p, numbers.q), made.public_key()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["source"])
def test_every_step_is_that_of_the_vectors(vector):
    key = PrivateKey(int(vector["p"], 16), int(vector["q"], 16))
    data = {name: bytes.fromhex(vector[name]) for name in ("prefix", "message", "salt")}
    blinding = Blinding(data["prefix"] + data["message"], data["salt"], int(vector["factor"], 16))
    blinded = key.public.blind(blinding)
    assert blinded.hex() == vector["blinded"]
    answer = key.sign(blinded)
    assert answer.hex() == vector["answer"]
    assert key.public.unblind(blinding, answer).hex() == vector["signature"]


def test_openssl_takes_what_is_made_here(keys):
    key, theirs = keys
    for message in (b"", b"nextapp token", bytes(1000)):
        blinding = key.public.new_blinding(message)
        signature = key.public.unblind(blinding, key.sign(key.public.blind(blinding)))
        theirs.verify(signature, blinding.prepared, PSS, hashes.SHA384())
        with pytest.raises(InvalidSignature):
            theirs.verify(signature, blinding.prepared + b"\0", PSS, hashes.SHA384())


def test_what_openssl_signs_is_taken_here():
    made = rsa.generate_private_key(E, 2048)
    key = PublicKey(made.public_key().public_numbers().n)
    signature = made.sign(b"prepared", PSS, hashes.SHA384())
    key.verify(b"prepared", signature)
    other_salt = made.sign(
        b"prepared", padding.PSS(padding.MGF1(hashes.SHA384()), 32), hashes.SHA384()
    )
    with pytest.raises(BadSignature):
        key.verify(b"prepared", other_salt)


def test_a_changed_signature_message_or_key_is_refused(keys):
    key, _ = keys
    blinding = key.public.new_blinding(b"nextapp token")
    good = key.public.unblind(blinding, key.sign(key.public.blind(blinding)))
    s = int.from_bytes(good)
    bad = [
        b"",
        good[:-1],
        b"\0" + good,
        bytes(256),
        (1).to_bytes(256),
        (s ^ 1).to_bytes(256),
        (s ^ 1 << 2000).to_bytes(256),
        (key.public.n - s).to_bytes(256),
        (key.public.n - 1).to_bytes(256),
        b"\xff" * 256,
    ]
    for each in bad:
        with pytest.raises(BadSignature):
            key.public.verify(blinding.prepared, each)
    for prepared in (b"", blinding.prepared[:-1], blinding.prepared + b"\0"):
        with pytest.raises(BadSignature):
            key.public.verify(prepared, good)
    with pytest.raises(BadSignature):
        PublicKey(key.public.n - 2).verify(blinding.prepared, good)


def test_the_same_number_in_other_bytes_is_refused():
    """s + n has the length of the modulus for some keys and signatures, and would be a second."""
    vector = VECTORS[0]
    key = PrivateKey(int(vector["p"], 16), int(vector["q"], 16)).public
    prepared = bytes.fromhex(vector["prefix"] + vector["message"])
    s = int(vector["signature"], 16)
    assert s + key.n < 1 << 8 * key.n_bytes  # else this tests nothing
    key.verify(prepared, s.to_bytes(key.n_bytes))
    with pytest.raises(BadSignature):
        key.verify(prepared, (s + key.n).to_bytes(key.n_bytes))


def test_an_answer_by_another_key_is_refused_when_it_is_unblinded(keys):
    key, _ = keys
    numbers = rsa.generate_private_key(E, 2048).private_numbers()
    other = PrivateKey(numbers.p, numbers.q)
    blinding = key.public.new_blinding(b"nextapp token")
    blinded = int.from_bytes(key.public.blind(blinding)) % other.public.n
    with pytest.raises(BadSignature):
        key.public.unblind(blinding, other.sign(blinded.to_bytes(256)))


def test_every_message_fits_what_the_signer_saw_with_one_factor(keys):
    """Blindness: for any blinded number and any message there is a factor that links the two."""
    key, _ = keys
    n, d = key.public.n, pow(E, -1, math.lcm(key.p - 1, key.q - 1))
    seen = key.public.blind(key.public.new_blinding(b"one"))
    for message in (b"another", b"a third"):
        blinding = key.public.new_blinding(message)
        M = int.from_bytes(encode(blinding.prepared, blinding.salt, n.bit_length() - 1))
        factor = pow(int.from_bytes(seen) * pow(M, -1, n) % n, d, n)
        assert key.public.blind(blinding._replace(factor=factor)) == seen


def smooth_modulus() -> int:
    """Odd, of 2,048 bits, of small primes: whoever sees a number of this key sees many factors."""
    odd = range(3, 1600, 2)
    primes = [p for p in odd if all(p % q for q in range(3, math.isqrt(p) + 1, 2))]
    n = 1
    for p in primes:
        if (n * p).bit_length() < 2040:
            n *= p
    return n * ((1 << 2048) // n - 1 | 1)


def test_what_is_blinded_shows_no_factor_that_the_signature_has_too():
    key = PublicKey(smooth_modulus())
    assert key.n.bit_length() == 2048
    for _ in range(20):
        blinding = key.new_blinding(b"nextapp token")
        assert math.gcd(int.from_bytes(key.blind(blinding)), key.n) == 1


def test_a_signer_that_computes_wrongly_sends_nothing(keys):
    key = PrivateKey(keys[0].p, keys[0].q)
    at_p, at_q, q_inverse = key._parts
    vars(key)["_parts"] = (at_p, at_q + 1, q_inverse)
    with pytest.raises(ArithmeticError, match="computes wrongly"):
        key.sign(key.public.blind(key.public.new_blinding(b"nextapp token")))


def test_the_same_request_has_the_same_answer(keys):
    key, _ = keys
    blinded = key.public.blind(key.public.new_blinding(b"nextapp token"))
    assert key.sign(blinded) == key.sign(blinded)


@pytest.mark.parametrize("n", [0, 1 << 2047, (1 << 2047) + 1 >> 1, (1 << 1000) + 1, -5])
def test_a_modulus_that_is_none_is_refused(n):
    with pytest.raises(ValueError, match="modulus"):
        PublicKey(n)
