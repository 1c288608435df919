"""Ways to predict the next app, behind one protocol: the rivals here, each other model in its own
module, all of them by name in `nextapp.predictors.registry`."""

from nextapp.predictors.questions import Predictor, Question, Questions
from nextapp.predictors.rivals import (
    MFU,
    MRU,
    PPM,
    SR,
    OnlineMFU,
    OnlineMRU,
    OnlineSR,
    OnlineSROnDevice,
    Random,
    SROnDevice,
    SROnDeviceByS,
)

__all__ = [
    "MFU",
    "MRU",
    "PPM",
    "SR",
    "OnlineMFU",
    "OnlineMRU",
    "OnlineSR",
    "OnlineSROnDevice",
    "Predictor",
    "Question",
    "Questions",
    "Random",
    "SROnDevice",
    "SROnDeviceByS",
]
