"""Ways to predict the next app, behind one protocol: the rivals here, each other model in its own
module, all of them by name in `nextapp.predictors.registry`."""

from nextapp.predictors.questions import Predictor, Question, Questions
from nextapp.predictors.rivals import (
    MFU,
    MRU,
    PPM,
    SR,
    ChromeOS,
    CountMix,
    Kiss,
    OnlineMFU,
    OnlineSR,
    OnlineSROnDevice,
    Random,
    Recents,
    SROnDevice,
    SROnDeviceByS,
)

__all__ = [
    "MFU",
    "MRU",
    "PPM",
    "SR",
    "ChromeOS",
    "CountMix",
    "Kiss",
    "OnlineMFU",
    "OnlineSR",
    "OnlineSROnDevice",
    "Predictor",
    "Question",
    "Questions",
    "Random",
    "Recents",
    "SROnDevice",
    "SROnDeviceByS",
]
