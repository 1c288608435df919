"""What a server trains: a learner takes the sum of a round's reports and publishes a broadcast."""

from __future__ import annotations

from nextapp.learners.crowd import SLOTS_BY_BUCKET, CrowdLearner, CrowdRequests, add_apps
from nextapp.learners.learner import (
    Learner,
    RoundSum,
    State,
    read_checkpoint,
    run_round,
    run_rounds,
    write_checkpoint,
)
from nextapp.learners.seqmf import (
    OPTIMISERS,
    Optimiser,
    SeqMFLearner,
    adam,
    momentum,
    random_vectors,
    sgd,
    starting_vectors,
)

__all__ = [
    "OPTIMISERS",
    "SLOTS_BY_BUCKET",
    "CrowdLearner",
    "CrowdRequests",
    "Learner",
    "Optimiser",
    "RoundSum",
    "SeqMFLearner",
    "State",
    "adam",
    "add_apps",
    "momentum",
    "random_vectors",
    "read_checkpoint",
    "run_round",
    "run_rounds",
    "sgd",
    "starting_vectors",
    "write_checkpoint",
]
