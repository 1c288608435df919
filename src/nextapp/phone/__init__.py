"""A phone that a person can try: its store, its client, its commands.

`Phone` keeps launches in a `Store`, predicts from them, and takes part in a federation through a
`Client`. NumPy and the standard library only. ``python -m nextapp.phone`` runs it by hand.
"""

from __future__ import annotations

from nextapp.phone.client import Client, ServerError
from nextapp.phone.limits import Limits
from nextapp.phone.phone import Phone, Status, Synced
from nextapp.phone.store import Store, StoreError

__all__ = ["Client", "Limits", "Phone", "ServerError", "Status", "Store", "StoreError", "Synced"]
