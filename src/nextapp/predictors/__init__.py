"""Ways to predict the next app, behind one protocol."""

from nextapp.predictors.ceiling import Ceiling
from nextapp.predictors.factorised import SeqMF, Training, frozen, without_sequence
from nextapp.predictors.habitual import NextApp, online_scores, pooled
from nextapp.predictors.questions import Predictor, Question, Questions
from nextapp.predictors.rivals import MFU, MRU, SR, Random, SROnDevice

__all__ = [
    "MFU",
    "MRU",
    "SR",
    "Ceiling",
    "NextApp",
    "Predictor",
    "Question",
    "Questions",
    "Random",
    "SROnDevice",
    "SeqMF",
    "Training",
    "frozen",
    "online_scores",
    "pooled",
    "without_sequence",
]
