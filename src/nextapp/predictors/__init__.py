"""Ways to predict the next app, behind one protocol."""

from nextapp.predictors.ceiling import Ceiling
from nextapp.predictors.factorised import SeqMF, Training, frozen, without_sequence
from nextapp.predictors.nextapp import NextApp, online_scores
from nextapp.predictors.online_rivals import OnlineMFU, OnlineMRU, OnlineSR, OnlineSROnDevice
from nextapp.predictors.pooled import Pooled, pooled, pooled_without_pairs
from nextapp.predictors.questions import Predictor, Question, Questions
from nextapp.predictors.rivals import MFU, MRU, SR, Random, SROnDevice

__all__ = [
    "MFU",
    "MRU",
    "SR",
    "Ceiling",
    "NextApp",
    "OnlineMFU",
    "OnlineMRU",
    "OnlineSR",
    "OnlineSROnDevice",
    "Pooled",
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
    "pooled_without_pairs",
    "without_sequence",
]
