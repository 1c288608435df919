"""Evaluation of predictors: iterative revealing, HR, MRR and NDCG, intervals over users."""

from nextapp.evaluation.metrics import METRICS
from nextapp.evaluation.revealing import PRESETS, Exam, Preset, exam, find_preset
from nextapp.evaluation.static import Evaluation, Marks, evaluate, mark

__all__ = [
    "METRICS",
    "PRESETS",
    "Evaluation",
    "Exam",
    "Marks",
    "Preset",
    "evaluate",
    "exam",
    "find_preset",
    "mark",
]
