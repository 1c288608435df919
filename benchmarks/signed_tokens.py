"""Many tokens for tests under load: signed by OpenSSL with a vault's own key, without blinding."""

from __future__ import annotations

import secrets

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from nextapp.privacy.tokens import MESSAGE, PREFIX_BYTES, SALT_BYTES, E, Token
from nextapp.server.vault import Vault


def signed_tokens(vault: Vault, n: int) -> list[Token]:
    """As phones would have them of the newest key."""
    key = vault.keys.listed()[-1]
    private = vault.keys.private(key.id)
    p, q = private.p, private.q
    d = pow(E, -1, (p - 1) * (q - 1))
    public = rsa.RSAPublicNumbers(E, p * q)
    parts = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    signer = rsa.RSAPrivateNumbers(p, q, d, *parts, public).private_key()
    pss = padding.PSS(padding.MGF1(hashes.SHA384()), SALT_BYTES)
    found = []
    for _ in range(n):
        nonce = secrets.token_bytes(PREFIX_BYTES)
        found.append(Token(key.id, nonce, signer.sign(nonce + MESSAGE, pss, hashes.SHA384())))
    return found
