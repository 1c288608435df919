"""One round between one phone and the server, with the real messages: what leaves the phone?

The paper's Figure 1 shows what a phone keeps and what it sends. Here a phone launches apps, gets a
broadcast, solves its user vector and reports; all sizes are measured on the real messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nextapp.data import synthetic
from nextapp.learners import SeqMFLearner, sgd, starting_vectors
from nextapp.names import unknown
from nextapp.phone.core import PhoneCore
from nextapp.randomness import KeyedBits
from nextapp.studies.mechanisms import FORMS, PRINTED, mechanism_for_simulation
from nextapp.wire import Broadcast, ModelSettings, Report


@dataclass(frozen=True)
class OneRound:
    apps: int = 87
    dim: int = 64
    epsilon: float = 4.5
    clip: float = 1.0
    mechanisms: tuple[str, ...] = (PRINTED, "harmony", "walsh")
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.mechanisms:
            if name not in FORMS:
                raise ValueError(unknown("mechanism", name, FORMS))


def run(settings: OneRound) -> dict[str, Any]:
    """The sizes of the data kept on the phone and of the messages, by mechanism."""
    vectors = starting_vectors(settings.apps, settings.dim, 0.1, settings.seed)
    phone = PhoneCore()
    parameters = synthetic.fleet_parameters(1, settings.apps, 3)
    _, launched = synthetic.histories(parameters, settings.seed, 0, 1)
    for second, app in enumerate(launched.tolist()):
        phone.observe(app, when=float(second))
    ups = {}
    down = 0
    for name in settings.mechanisms:
        mechanism = mechanism_for_simulation(
            name, settings.epsilon, settings.apps, settings.dim, settings.clip
        )
        server = SeqMFLearner(vectors, ModelSettings(), sgd(0.01), mechanism)
        sent = server.broadcast.to_bytes()
        down = len(sent)
        phone.update(Broadcast.from_bytes(sent))
        gradient = phone.gradient()
        data = mechanism.encode(gradient, KeyedBits(settings.seed, 0, 0, "report"), 0).to_bytes()
        server.collect(Report.from_bytes(data))
        moved = server.step().app_vectors - vectors
        guarantee = mechanism.guarantee
        own = (np.ascontiguousarray(phone.user_vector).tobytes(), phone.history.tobytes())
        ups[name] = {
            "bytes": len(data),
            "payload_bytes": len(Report.from_bytes(data).payload),
            "covers": list(guarantee.covers),
            "sent_in_clear": list(guarantee.sent_in_clear),
            "epsilon": None if mechanism.unsafe else guarantee.epsilon,
            "holds_user_vector": own[0] in data,
            "holds_history": own[1] in data,
            "q_moved": float(np.linalg.norm(moved) / np.linalg.norm(vectors)),
        }
    return {
        "phone": {
            "n_launches": phone.n_launches,
            "n_own_apps": len(set(launched.tolist())),
            "user_vector_bytes": phone.user_vector.nbytes,
            "gradient_bytes": 8 * settings.apps * settings.dim,
        },
        "down": {"bytes": down, "n_apps": settings.apps, "dim": settings.dim},
        "up": ups,
        "epsilon": settings.epsilon,
    }
