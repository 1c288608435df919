"""Ways to predict the next app, behind one protocol."""

from nextapp.predictors.appusage2vec import AppUsage2Vec
from nextapp.predictors.ceiling import Ceiling
from nextapp.predictors.factorised import SeqMF, Training, frozen, without_sequence
from nextapp.predictors.nextapp import NextApp, online_scores
from nextapp.predictors.online_rivals import OnlineMFU, OnlineMRU, OnlineSR, OnlineSROnDevice
from nextapp.predictors.pooled import Pooled, pool_phones, pool_phones_without_pairs
from nextapp.predictors.ppm import PPM
from nextapp.predictors.questions import Predictor, Question, Questions
from nextapp.predictors.ranker import Ranker
from nextapp.predictors.rivals import MFU, MRU, SR, Random, SROnDevice, SROnDeviceByS

__all__ = [
    "MFU",
    "MRU",
    "PPM",
    "SR",
    "AppUsage2Vec",
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
    "Ranker",
    "SROnDevice",
    "SROnDeviceByS",
    "SeqMF",
    "Training",
    "frozen",
    "online_scores",
    "pool_phones",
    "pool_phones_without_pairs",
    "without_sequence",
]
