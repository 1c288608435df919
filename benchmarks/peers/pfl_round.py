"""A round of pfl's simulation, the phone's step in NumPy, harmony: seconds a phone, best of 7.

python pfl_round.py FLEET.npz CLIP EPSILON LAM      (columns of a fleet; app_vectors; α = 0, γ = 1)
"""

import json
import math
import os
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedAlgorithm
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.metrics import Metrics
from pfl.model.base import Model
from pfl.stats import MappedVectorStatistics

from phone import gradient, harmony

ROUNDS = 8  # the first is a warm-up


class AppVectors(Model):
    def __init__(self, Q):
        self.Q = Q

    def apply_model_update(self, statistics):
        self.Q = self.Q - 0.01 * statistics["F"]
        return self, Metrics()


class Rounds(FederatedAlgorithm):
    """Every round asks all users; ``starts`` has when each began, and when the last ended."""

    def __init__(self, n_users, clip, epsilon, lam):
        super().__init__()
        self.n_users, self.clip, self.epsilon, self.lam = n_users, clip, epsilon, lam
        self.rng = np.random.default_rng(0)
        self.starts = []

    def get_next_central_contexts(
        self, model, iteration, algorithm_params, model_train_params, model_eval_params=None
    ):
        self.starts.append(time.perf_counter())
        if iteration == ROUNDS:
            return None, model, Metrics()
        context = CentralContext(
            current_central_iteration=iteration,
            do_evaluation=False,
            cohort_size=self.n_users,
            population=Population.TRAIN,
            algorithm_params=algorithm_params,
            model_train_params=model_train_params,
            seed=self._get_seed(),
        )
        return (context,), model, Metrics()

    def simulate_one_user(self, model, user_dataset, central_context):
        apps, *rest = user_dataset.raw_data
        F = gradient(model.Q, apps, *rest, self.lam)
        app, column, sign = harmony(self.rng, apps, F, len(model.Q), self.clip, self.epsilon)
        report = np.zeros_like(model.Q)
        report[app, column] = sign
        return MappedVectorStatistics({"F": report}, weight=1), Metrics()

    def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
        statistics.average()
        statistics["F"] *= model.Q.size * self.clip / math.tanh(self.epsilon / 2)
        return model.apply_model_update(statistics)


def main():
    data = dict(np.load(sys.argv[1]))
    clip, epsilon, lam = map(float, sys.argv[2:])
    own, moves = data["app_starts"], data["transition_starts"]
    users = {
        u: Dataset(
            tuple(data[name][own[u] : own[u + 1]] for name in ("apps", "counts"))
            + tuple(
                data[name][moves[u] : moves[u + 1]] for name in ("previous", "following", "times")
            ),
            user_id=str(u),
        )
        for u in range(len(own) - 1)
    }
    dataset = FederatedDataset(
        users.__getitem__, get_user_sampler("minimize_reuse", user_ids=list(users))
    )
    rounds = Rounds(len(users), clip, epsilon, lam)
    rounds.run(
        None, SimulatedBackend(dataset, dataset), AppVectors(data["app_vectors"]), None,
        send_metrics_to_platform=False,
    )  # fmt: skip
    print(json.dumps({"seconds_per_phone": min(np.diff(rounds.starts)[1:]) / len(users)}))


if __name__ == "__main__":
    main()
