"""Predict the next app a person will launch, learnt across phones without any phone giving its
history away.

The public API can be imported from here; modules are loaded on first use::

    from nextapp import Client, Limits, Phone, Store     # a phone; needs only NumPy
    from nextapp import mechanism, Broadcast, Report     # messages and their privacy
    from nextapp import read_log, evaluate               # evaluation; the extra lab

What is where: ARCHITECTURE.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nextapp.data.cutting import Split as Split
    from nextapp.data.loading import read_log as read_log
    from nextapp.data.log import LaunchLog as LaunchLog
    from nextapp.evaluation import Evaluation as Evaluation
    from nextapp.evaluation import evaluate as evaluate
    from nextapp.evaluation import exam as exam
    from nextapp.evaluation import find_preset as find_preset
    from nextapp.phone import Client as Client
    from nextapp.phone import Limits as Limits
    from nextapp.phone import Phone as Phone
    from nextapp.phone import Store as Store
    from nextapp.phone.core import PhoneCore as PhoneCore
    from nextapp.privacy import mechanism as mechanism
    from nextapp.wire import Broadcast as Broadcast
    from nextapp.wire import Report as Report

__version__ = "0.2.0"

_HOMES = {
    "Broadcast": "nextapp.wire",
    "Client": "nextapp.phone",
    "Evaluation": "nextapp.evaluation",
    "LaunchLog": "nextapp.data.log",
    "Limits": "nextapp.phone",
    "Phone": "nextapp.phone",
    "PhoneCore": "nextapp.phone.core",
    "Report": "nextapp.wire",
    "Split": "nextapp.data.cutting",
    "Store": "nextapp.phone",
    "evaluate": "nextapp.evaluation",
    "exam": "nextapp.evaluation",
    "mechanism": "nextapp.privacy",
    "find_preset": "nextapp.evaluation",
    "read_log": "nextapp.data.loading",
}
__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nextapp' has no attribute {name!r}.")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
