from __future__ import annotations

import numpy as np
import pytest

from nextapp import model, predictors
from nextapp.data.cutting import Split
from nextapp.data.log import LaunchLog
from nextapp.evaluation import exam, find_preset, mark
from nextapp.learners import OPTIMISERS
from nextapp.predictors.rivals import SR, Counts, Random, table_pairs
from nextapp.predictors.training import OPTIMISER_NAMES, Training, frozen, without_sequence
from nextapp.wire import ModelSettings
from slow_seqmf import SlowSeqMF, phones_of_log, train


@pytest.fixture
def log(rng) -> LaunchLog:
    n_users, n_each, n_apps = 7, 80, 12
    own = np.array([rng.choice(n_apps, 5, replace=False) for _ in range(n_users)])
    user = np.repeat(np.arange(n_users), n_each)
    app = own[user, rng.integers(0, 5, n_users * n_each)]
    time = np.tile(np.cumsum(rng.choice([20_000, 2_000_000], n_each, p=[0.8, 0.2])), n_users)
    return LaunchLog.from_columns(
        user, app, time, [f"u{k}" for k in range(n_users)], [f"a{k}" for k in range(n_apps)]
    )


@pytest.fixture
def test_part(log):
    return exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset("paper"))


@pytest.mark.parametrize("inference", ["sum", "mean", "last", "window:1", "window:3", "none"])
@pytest.mark.parametrize("rounds", [0, 3])
def test_seqmf_scores_are_the_light_scores_of_each_phone(test_part, inference, rounds, seed):
    settings = ModelSettings(alpha=0.1, gamma=0.5, inference=inference)
    predictor = SlowSeqMF(Training(settings, dim=5, rounds=rounds, rate=0.05), seed)
    predictor.fit(test_part.history)
    Q = predictor.app_vectors
    for chunk in test_part.chunks:
        questions = chunk.questions
        expected = [
            model.light_scores(Q, predictor.user_vectors[user], session, inference)[candidates]
            for user, session, candidates in questions
        ]
        np.testing.assert_allclose(
            predictor.score(questions), np.concatenate(expected), rtol=1e-10, atol=1e-12
        )


def test_user_vectors_are_solved_against_the_final_q(test_part, seed):  # R16
    training = Training(ModelSettings(lam=0.1, alpha=0.1), dim=4, rounds=4, rate=0.05)
    predictor = SlowSeqMF(training, seed)
    predictor.fit(test_part.history)
    history = test_part.history
    Q = predictor.app_vectors
    for user in range(history.n_users):
        apps = history.app[history.user == user]
        counts = np.bincount(apps, minlength=12)
        S = model.transitions(apps, 12)
        c = model.confidence(counts, 0.1, 1.0)
        p = model.user_vector(Q, c, (counts > 0) * 1.0, model.short_term(S, Q), 0.1)
        np.testing.assert_allclose(predictor.user_vectors[user], p, atol=1e-10)


def test_the_same_seed_trains_the_same_vectors_and_another_does_not(test_part):
    vectors = []
    for seed in (1, 1, 2):
        predictor = SlowSeqMF(Training(dim=4, rounds=2), seed)
        predictor.fit(test_part.history)
        vectors.append(predictor.app_vectors)
    assert np.array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])


def test_frozen_vectors_are_the_start_of_the_trained_ones(log, seed):
    training = Training(dim=4, rounds=3, optimiser="sgd", rate=1e-12)
    still = train(phones_of_log(log), log.n_apps, frozen(training), seed)
    moved = train(phones_of_log(log), log.n_apps, training, seed)
    assert (still.round, moved.round) == (0, 3)
    np.testing.assert_allclose(still.app_vectors, moved.app_vectors, atol=1e-9)


def test_mf_is_deaf_to_order(test_part, rng, seed):
    """Shuffling each phone's history moves SeqMF and leaves MF where it was."""
    history = test_part.history
    order = np.lexsort((rng.random(len(history)), history.user))
    shuffled = LaunchLog(
        history.user, history.app[order], history.time, history.users, history.apps
    )
    for training, same in (
        (without_sequence(Training(dim=4, rounds=3)), True),
        (Training(dim=4, rounds=3), False),
    ):
        first, second = SlowSeqMF(training, seed), SlowSeqMF(training, seed)
        first.fit(history)
        second.fit(shuffled)
        assert np.allclose(first.app_vectors, second.app_vectors, atol=1e-10) is same


def test_training_learns(test_part, seed):
    """The loss of eq. (3), over all phones, falls."""

    def loss(predictor):
        Q, total = predictor.app_vectors, 0.0
        history = test_part.history
        for user in range(history.n_users):
            apps = history.app[history.user == user]
            counts = np.bincount(apps, minlength=12)
            total += model.loss(
                Q,
                predictor.user_vectors[user],
                model.confidence(counts, 0.0, 1.0),
                (counts > 0) * 1.0,
                model.transitions(apps, 12),
                0.1,
            )
        return total + 0.05 * (Q**2).sum()

    training = Training(ModelSettings(lam=0.1, alpha=0.0), dim=4, rounds=40, rate=0.02, scale=0.3)
    before, after = SlowSeqMF(frozen(training), seed), SlowSeqMF(training, seed)
    before.fit(test_part.history)
    after.fit(test_part.history)
    assert loss(after) < 0.9 * loss(before)


def test_phones_solve_only_every_so_often(log, seed):
    """With all rounds on one user vector, Q takes another path than with a solve each round."""
    often = train(phones_of_log(log), log.n_apps, Training(dim=3, rounds=6), seed)
    seldom = train(phones_of_log(log), log.n_apps, Training(dim=3, rounds=6, solve_every=6), seed)
    assert not np.allclose(often.app_vectors, seldom.app_vectors)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"optimiser": "adma"}, "optimiser must be one of sgd, momentum, adam"),
        ({"dim": 0}, "dim and solve_every"),
        ({"rounds": -1}, "rounds 0 or more"),
    ],
)
def test_bad_training_settings_say_so(bad, says):
    with pytest.raises(ValueError, match=says):
        Training(**bad)


def test_counts_of_nothing_are_zero():
    assert Counts.of(np.zeros(0, np.int64)).at(np.array([3, 4])).tolist() == [0, 0]


def test_every_pair_of_a_users_candidates_has_a_cell(test_part):
    questions = test_part.chunks[0].questions
    user, launched, candidate = table_pairs(questions)
    first = questions.candidates[: questions.candidate_starts[1]]
    k = len(first)
    assert (user[: k * k] == questions.users[0]).all()
    assert launched[: k * k].reshape(k, k).tolist() == [[app] * k for app in first]
    assert candidate[: k * k].reshape(k, k).tolist() == [first.tolist()] * k


def test_a_predictor_of_ones_own_can_answer_question_by_question(test_part):
    class Alphabet(Random):
        """The plain way: lower app numbers first."""

        name = "alphabet"
        in_expectation = False

        def score(self, questions):
            return np.concatenate([-q.candidates.astype(float) for q in questions])

    by_user = mark(test_part, Alphabet())["all"]
    assert by_user.shape == (7, 9)
    assert 0 < by_user[:, 2].mean() <= 1


def test_sr_does_not_run_across_users():
    """u0 ends with app 0 and u1 begins with app 1: no rule 0 -> 1."""
    log = LaunchLog.from_columns([0, 0, 1, 1], [2, 0, 1, 2], [0, 1, 2, 3], ["u", "v"], list("abc"))
    rules = SR()
    rules.fit(log)
    assert sorted(rules.rules.keys.tolist()) == [1 * 3 + 2, 2 * 3 + 0]


def test_a_class_in_a_file_is_a_model(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "class Mine:\n    name, in_expectation = 'mine', False\n"
        "    def __init__(self, seed):\n        self.seed = seed\n"
    )
    assert predictors.build(f"{own}:Mine", seed=5).seed == 5
    for wrong, said in (
        (f"{own}:Min", "did you mean 'Mine'"),
        (f"{tmp_path}/none.py:Mine", "there is no file"),
        ("mruu", "did you mean 'mru'"),
    ):
        with pytest.raises(ValueError, match=said):
            predictors.build(wrong)


def test_every_known_model_is_built_by_its_name():
    for name in set(predictors.KNOWN) - set(predictors.FEDERATED):
        assert predictors.build(name, source="synthetic:phones=2").name == name


def test_the_names_of_optimisers_are_those_of_the_learners():
    assert tuple(OPTIMISERS) == OPTIMISER_NAMES
