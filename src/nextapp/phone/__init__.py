"""A phone that a person can try: its store, its client, its commands.

`Phone` keeps launches in a `Store`, predicts from them, and takes part in a federation through a
`Client`. NumPy and the standard library only. ``python -m nextapp.phone`` runs it by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nextapp.phone.core import Limits, ServerError
from nextapp.phone.ledger import StoreError
from nextapp.phone.phone import Phone, Synced
from nextapp.phone.store import Store

if TYPE_CHECKING:
    from nextapp.phone.client import Client as Client

__all__ = ["Client", "Limits", "Phone", "ServerError", "Store", "StoreError", "Synced"]


def __getattr__(name: str) -> Any:
    """`Client` is loaded when it is used: its imports take as long as the rest of a phone's."""
    if name != "Client":
        raise AttributeError(f"module 'nextapp.phone' has no attribute {name!r}.")
    from nextapp.phone.client import Client

    return Client
