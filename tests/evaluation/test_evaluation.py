from __future__ import annotations

import itertools

import numpy as np
import pytest

from nextapp.data.cutting import Split
from nextapp.data.loading import read_log
from nextapp.data.log import LaunchLog
from nextapp.evaluation import METRICS, evaluate, exam, find_preset, mark, metrics
from nextapp.predictors.rivals import MFU, MRU, SR, Random, SROnDevice
from nextapp.table import bootstrap_means, bootstrap_within, interval


def one_user(apps, n_apps=None) -> LaunchLog:
    n_apps = n_apps or max(apps) + 1
    times = 10_000 * np.arange(len(apps))
    return LaunchLog.from_columns(
        np.zeros(len(apps)), apps, times, ["u"], [f"a{k}" for k in range(n_apps)]
    )


# --- metrics, by hand


@pytest.mark.parametrize(
    ("rank", "expected"),
    [
        (1, [1, 1, 1, 1, 1, 1, 1, 1, 1]),
        (2, [0, 1, 1, 0, 1 / 2, 1 / 2, 0, 1 / np.log2(3), 1 / np.log2(3)]),
        (3, [0, 1, 1, 0, 1 / 3, 1 / 3, 0, 1 / 2, 1 / 2]),
        (4, [0, 0, 1, 0, 0, 1 / 4, 0, 0, 1 / np.log2(5)]),
        (6, [0] * 9),
        (60, [0] * 9),
    ],
)
def test_a_rank_has_these_values(rank, expected):
    found = metrics.values(np.array([rank - 1]), np.array([1]), "expected")
    np.testing.assert_allclose(found[0], expected)
    found = metrics.values(np.array([rank - 1]), np.array([1]), "pessimistic")
    np.testing.assert_allclose(found[0], expected)


def test_pessimistic_ties_put_the_target_last():
    tied = metrics.values(np.array([0]), np.array([4]), "pessimistic")
    alone = metrics.values(np.array([3]), np.array([1]), "pessimistic")
    assert np.array_equal(tied, alone)


def test_expected_ties_are_the_mean_over_all_orders():
    for better, level in itertools.product(range(4), range(1, 7)):
        ranks = better + 1 + np.arange(level)
        each = metrics.values(ranks - 1, np.ones(level, int), "expected")
        found = metrics.values(np.array([better]), np.array([level]), "expected")
        np.testing.assert_allclose(found[0], each.mean(axis=0), atol=1e-15)


def test_a_target_that_does_not_compete_is_a_miss():
    for ties in ("pessimistic", "expected"):
        assert not metrics.values(np.array([0]), np.array([0]), ties).any()


# --- revealing


def _marks_of_mru(test):
    mru = MRU()
    mru.fit(test.history)
    return mark(test, mru)


def test_the_session_within_the_test_part_is_all_that_mru_sees():
    log = one_user([3, 3, 3, 3, 0, 1, 2, 0])
    test = exam(log, Split.parse("fraction:0.5,0,0.5"), find_preset("honest"))
    assert test.n_predictions == 3
    by_user = _marks_of_mru(test)["all"]
    # 1 and 2 are unknown when launched, misses; then 0 ranks third behind 2 and 1
    np.testing.assert_allclose(by_user[0, :3], [0, 1 / 3, 1 / 3])


def test_repeats_are_counted_and_the_last_app_is_left_out():
    log = one_user([0, 1, 0, 1, 0, 0, 0, 1])
    test = exam(log, Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))
    assert test.repeats.tolist() == [False, True, True, False]
    found = _marks_of_mru(test)
    assert found["all"][0, 0] == pytest.approx(2 / 3)
    assert found["different"][0, 0] == 1.0  # of two apps the open one is left out
    assert np.isnan(found["openings"]).all()  # the split cuts a session


def test_an_opening_is_asked_without_a_session_so_far():
    """Two apps, a session of each; the third session begins within 15 minutes of the training part,
    so its first launch opens nothing."""
    minutes = np.array([0, 1, 2, 3, 4, 30, 31, 60, 61])
    log = LaunchLog.from_columns(
        np.zeros(9), [0, 0, 0, 1, 0, 1, 0, 0, 1], 60_000 * minutes, ["u"], ["a", "b"]
    )
    test = exam(log, Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))
    assert test.openings.tolist() == [False, True, False, True, False]
    mfu = MFU()
    mfu.fit(test.history)
    assert mark(test, mfu)["openings"][0, :1] == [0.5]
    assert _marks_of_mru(test)["openings"][0, :1] == [0.5]  # by chance: it knows only sessions


@pytest.mark.parametrize("preset", ["paper", "neural"])
def test_a_user_with_nothing_but_repeats_counts_for_nothing_without_them(preset):
    log = one_user([0, 1, 0, 1, 0, 0, 0])
    test = exam(log, Split.parse("fraction:0.6,0,0.4"), find_preset(preset))
    result = evaluate(test, [MRU()], seed=0).summary()
    assert np.isnan(_marks_of_mru(test)["different"]).all()
    assert result["models"]["mru"]["HR@1"] == 1.0
    assert result["models"]["mru"]["different"]["HR@1"] is None


def test_a_tidy_table_has_a_row_for_every_figure_of_the_summary():
    test = exam(one_user([0, 1] * 6 + [0, 0, 1, 2, 1]), Split.parse("fraction:0.5,0,0.5"),
                find_preset("honest"))  # fmt: skip
    asked = evaluate(test, [MRU(), MFU()], seed=0)
    found, summary = asked.to_polars(), asked.summary()["models"]
    assert found.columns == ["model", "table", "metric", "value", "low", "high", "n_users",
                             "preset", "split"]  # fmt: skip
    assert len(found) == 2 * 9 * 3
    for row in found.iter_rows(named=True):
        figures = summary[row["model"]]
        figures = figures if row["table"] == "all" else figures[row["table"]]
        assert row["value"] == figures[row["metric"]]
        assert [row["low"], row["high"]] == list(figures["ci95"][row["metric"]] or (None, None))
        n_users = 0 if row["table"] == "openings" else 1
        assert (row["n_users"], row["preset"], row["split"]) == (n_users, "honest", test.how)


def test_a_tidy_table_has_nulls_where_nobody_is_asked():
    test = exam(one_user([0, 1, 1, 1, 1, 1, 1, 1], 2), Split.parse("fraction:0.5,0,0.5"),
                find_preset("honest"))  # fmt: skip
    found = evaluate(test, [MRU()], seed=0).to_polars()
    nobody = [row for row in found.iter_rows(named=True) if row["table"] != "all"]
    assert {(row["value"], row["low"], row["n_users"]) for row in nobody} == {(None, None, 0)}
    assert found["value"].null_count() == 2 * 9


def test_a_log_and_names_are_measured_as_an_exam_and_predictors_are():
    log = read_log("synthetic:lsapp,phones=8", seed=3)
    test = exam(log, Split.parse("fraction:0.7,0,0.3"), find_preset("paper"))
    expected = evaluate(test, [MRU(), SROnDevice()], seed=5)
    found = evaluate(log, ["mru", SROnDevice()], 5, split="fraction:0.7,0,0.3", preset="paper")
    assert found.to_polars().equals(expected.to_polars())
    assert [mark.name for mark in evaluate(log).marks] == ["mru", "mfu", "sr-od", "nextapp"]


def test_the_papers_model_is_measured_by_its_name():
    found = evaluate(read_log("synthetic:phones=3,apps=8,days=6"), ["seqmf-frozen"])
    assert list(found.summary()["models"]) == ["seqmf-frozen"]


def test_a_result_is_a_frame_of_pandas_and_a_figure():
    result = evaluate(read_log("synthetic:phones=3,apps=8,days=6"), ["mru", "mfu"])
    figure = result.plot()
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["HR@1", "HR@3", "HR@5"]
    assert figure._repr_html_().startswith("<svg ")
    pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert list(frame.columns) == result.to_polars().columns
    assert frame.to_dict("records") == result.to_polars().to_dicts()


@pytest.mark.parametrize(
    ("log", "models", "words"),
    [
        ("launches.csv", ["mru"], r"evaluate needs a launch log, got str: evaluate\(read_log"),
        (one_user([0, 1] * 6), "mru", r"models must be several, as in \['mru'\]"),
        (one_user([0, 1] * 6), [], "models must be at least one"),
        (one_user([0, 1] * 6), [MRU], "a model is a name or a predictor such as MRU"),
    ],
)
def test_what_is_not_measured_is_refused_in_words(log, models, words):
    with pytest.raises((TypeError, ValueError), match=words):
        evaluate(log, models)


def test_an_evaluation_says_what_it_is_in_a_line_and_in_a_notebook():
    test = exam(one_user([0, 1] * 6), Split.parse("fraction:0.5,0,0.5"), find_preset("honest"))
    asked = evaluate(test, [MRU(), MFU()], seed=0)
    assert repr(asked) == (
        f"<Evaluation of mru, mfu: {test.n_predictions} predictions, 1 user, preset honest, "
        f"split {test.how}>"
    )
    page = asked._repr_html_()
    assert page.count("<tr>") == 6  # two tables: no launch opens a session
    assert all(f"<th>{metric}</th>" in page for metric in METRICS)
    value = asked.summary()["models"]["mfu"]["HR@1"]
    assert f">{f'{value:.3f}'.removeprefix('0')}</" in page


def test_scores_that_are_not_finite_are_an_error_never_a_hit():
    class Broken(Random):
        name = "broken"

        def score(self, questions):
            scores = super().score(questions)
            scores[-1] = np.nan
            return scores

    test = exam(one_user([0, 1] * 6), Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))
    with pytest.raises(ValueError, match="broken gave scores that are not finite"):
        mark(test, Broken())


def test_a_predictor_must_score_every_cell():
    class Short(Random):
        name = "short"

        def score(self, questions):
            return super().score(questions)[1:]

    test = exam(one_user([0, 1] * 6), Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))
    with pytest.raises(ValueError, match="one score per prediction and candidate"):
        mark(test, Short())


def test_nothing_to_predict_is_an_error():
    with pytest.raises(ValueError, match="no session of two launches"):
        exam(one_user([0, 1]), Split.parse("fraction:0.5,0,0.5"), find_preset("paper"))


def test_how_the_work_is_cut_does_not_matter(monkeypatch, rng):
    from nextapp.evaluation import revealing

    user = np.repeat(np.arange(8), 60)
    log = LaunchLog.from_columns(
        user,
        rng.integers(0, 9, 480),
        np.tile(np.cumsum(rng.choice([10_000, 1_000_000], 60)), 8),
        [str(k) for k in range(8)],
        [str(k) for k in range(9)],
    )
    figures = []
    for chunks in (1, 3, 1000):
        monkeypatch.setattr(revealing, "_CHUNKS", chunks)
        test = exam(log, Split.parse("fraction:0.5,0,0.5"), find_preset("honest"))
        figures.append([mark(test, p)["all"] for p in _fitted(test)])
    for other in figures[1:]:
        for mine, theirs in zip(figures[0], other, strict=True):
            assert np.array_equal(mine, theirs)


def _fitted(test):
    predictors = [Random(), MRU(), MFU(), SR(), SROnDevice()]
    for predictor in predictors:
        predictor.fit(test.history)
    return predictors


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(ValueError, match="Known: authors, paper, honest, neural"):
        find_preset("fair")


# --- intervals


def test_the_interval_covers_the_truth_19_times_in_20(seed):
    """Of 300 intervals at least 265 and at most 299 cover: outside once in ten thousand seeds
    or so."""
    rng = np.random.default_rng(seed)
    samples = rng.normal(0.4, 0.1, (60, 300))
    low, high = interval(bootstrap_means(samples, seed=seed))
    assert 265 <= ((low < 0.4) & (high > 0.4)).sum() <= 299


def test_the_interval_agrees_with_the_textbook():
    samples = np.random.default_rng(0).normal(0.4, 0.1, (400, 1))
    low, high = interval(bootstrap_means(samples, seed=1))
    error = 1.96 * samples.std() / 20
    np.testing.assert_allclose(
        [low[0], high[0]], samples.mean() + np.array([-error, error]), atol=0.1 * error
    )


def test_draws_are_shared_by_all_columns_so_differences_are_paired():
    one = np.random.default_rng(0).random((30, 1))
    means = bootstrap_means(np.hstack([one, one + 0.25]), seed=0)
    np.testing.assert_allclose(means[:, 1] - means[:, 0], 0.25)


def test_where_users_weigh_by_their_predictions_so_do_those_drawn():
    """Bug: the weights of the users drawn were not summed, so hit rates of 1 had an interval up to
    1.3. By hand: each draw's hits over its predictions."""
    n, hits = np.array([2.0, 5.0, 90.0]), np.array([1.0, 5.0, 60.0])
    weights = n / n.mean()
    drawn = bootstrap_means((hits / n * weights)[:, None], 0, weights)[:, 0]
    every = [np.array(one) for one in itertools.combinations_with_replacement(range(3), 3)]
    possible = {round(hits[one].sum() / n[one].sum(), 9) for one in every}
    assert set(np.round(drawn, 9)) == possible
    assert np.all(bootstrap_means(weights[:, None], 0, weights) == pytest.approx(1.0))


def test_intervals_of_hit_rates_lie_within_0_and_1():
    log = read_log("synthetic:lsapp,phones=8", seed=3)
    for preset in ("paper", "neural"):
        test = exam(log, Split.parse("fraction:0.7,0.1,0.2"), find_preset(preset))
        found = evaluate(test, [MRU(), MFU()], 0)
        row = found.summary()["models"]["mru"]
        for figures in (row, row["different"]):
            low, high = figures["ci95"]["HR@5"]
            assert 0.0 <= low <= figures["HR@5"] <= high <= 1.0
        gap = found.difference("mru", "mfu")["HR@5"]
        assert gap["low"] <= gap["difference"] <= gap["high"]


def test_the_lead_is_over_the_best_rival_of_each_table_and_metric():
    """Controls and other forms of the same model are no rivals."""
    log = read_log("synthetic:lsapp,phones=8", seed=3)
    test = exam(log, Split.parse("fraction:0.7,0.1,0.2"), find_preset("paper"))
    names = {"nextapp": MFU, "nextapp-alone": SR, "seqmf-frozen": SR, "a": Random, "b": MRU}
    models = []
    for name, kind in names.items():
        models.append(kind())
        models[-1].name = name
    found = evaluate(test, models, 0)
    leads, summary = found.leads("nextapp"), found.summary()["models"]
    assert list(leads) == ["all", "different", "openings"]
    for table, metrics_of in leads.items():
        for metric, lead in metrics_of.items():
            rows = {n: r if table == "all" else r[table] for n, r in summary.items()}
            best = max(("a", "b"), key=lambda name: rows[name][metric])
            assert rows[lead["rival"]][metric] == rows[best][metric]
            gap = rows["nextapp"][metric] - rows[best][metric]
            assert lead["difference"] == pytest.approx(gap)
            assert lead["low"] <= lead["difference"] <= lead["high"]


def test_the_interval_of_a_lead_is_that_of_the_smallest_lead():
    """Against a bootstrap written here: in each resample of users the lead over the best rival."""
    log = read_log("synthetic:lsapp,phones=40", seed=3)
    test = exam(log, Split.parse("fraction:0.7,0.1,0.2"), find_preset("paper"))
    models = [SR(), MFU(), MRU(), SROnDevice()]
    models[0].name = "nextapp"
    found = evaluate(test, models, 0)
    place = METRICS.index("HR@5")
    own, *rivals = (mark.tables["different"][:, place] for mark in found.marks)
    gaps = own - np.array(rivals)
    there = gaps[:, ~np.isnan(own)]
    drawn = np.random.default_rng(5).integers(0, there.shape[1], (20_000, there.shape[1]))
    smallest = np.array([there[:, users].mean(axis=1).min() for users in drawn])
    lead = found.leads("nextapp")["different"]["HR@5"]
    assert lead["difference"] == pytest.approx(there.mean(axis=1).min())
    expected = np.quantile(smallest, [0.025, 0.975])
    np.testing.assert_allclose([lead["low"], lead["high"]], expected, atol=0.004)


# --- fewer than ten users


def days_of_two_apps(hits_by_day: list[list[int]]) -> LaunchLog:
    """One user: each day is a session of a launch of b and then of a (a hit) or of b."""
    apps, times = [1] + [0] * 8, [10_000 * n for n in range(9)]
    for day, hits in enumerate(hits_by_day, 1):
        apps += [1, *(0 if hit else 1 for hit in hits)]
        times += [86_400_000 * day + 10_000 * n for n in range(len(hits) + 1)]
    return LaunchLog.from_columns(np.zeros(len(apps)), apps, times, ["u"], ["a", "b"])


class SaysA:
    name, in_expectation = "a", False

    def fit(self, history):
        pass

    def score(self, questions):
        widths = np.diff(questions.candidate_starts)[questions.session_user]
        n_launches = np.diff(questions.session_starts)
        cells = [np.tile(np.arange(w)[::-1], n) for w, n in zip(widths, n_launches, strict=True)]
        return np.concatenate(cells).astype(float)


@pytest.mark.parametrize("preset", ["honest", "authors", "neural"])
def test_of_one_user_the_interval_is_over_days(preset):
    """Against a bootstrap of days written here; it was (x to x) when users were resampled."""
    generator = np.random.default_rng(2)
    hits = [generator.integers(0, 2, generator.integers(1, 9)).tolist() for _ in range(14)]
    log = days_of_two_apps(hits)
    split = Split.parse(f"fraction:{9.5 / len(log)},0,{1 - 9.5 / len(log)}")
    result = evaluate(exam(log, split, find_preset(preset)), [SaysA()], 0).summary()
    assert result["intervals"] == "95 %, over the days of 1 user"
    assert "say nothing about other people" in result["warnings"][0]
    figures = result["models"]["a"]
    # honest: mean over sessions; neural: all but the very first launch of the part is predicted
    total = np.array([sum(day) for day in hits], float)
    size = np.array([len(day) for day in hits], float)
    if preset == "honest":
        total, size = total / size, np.ones(len(hits))
    if preset == "neural":
        size[1:] += 1
    drawn = generator.multinomial(len(hits), np.full(len(hits), 1 / len(hits)), 40_000)
    expected = np.quantile((drawn @ total) / (drawn @ size), [0.025, 0.975])
    assert figures["HR@1"] == pytest.approx(total.sum() / size.sum())
    np.testing.assert_allclose(figures["ci95"]["HR@1"], expected, atol=0.02)


def test_where_days_are_few_the_interval_is_over_sessions_and_then_over_launches():
    apps = [0, 1] * 40
    for pause, name in ((20 * 60_000, "sessions"), (10_000, "launches")):
        times = np.cumsum([pause if n % 4 == 0 else 10_000 for n in range(len(apps))])
        log = LaunchLog.from_columns(np.zeros(len(apps)), apps, times, ["u"], ["a", "b"])
        test = exam(log, Split.parse("fraction:0.4,0,0.6"), find_preset("honest"))
        assert test.units.name == name
        assert np.all(np.diff(test.units.of_row) >= 0)
        assert (
            evaluate(test, [MRU()], 0).summary()["intervals"].startswith("95 %, over the " + name)
        )


def test_no_user_leaves_a_resample_of_the_days_of_few():
    sums, owner = np.array([[1.0], [1.0], [1.0], [0.0], [0.0]]), np.array([0, 0, 0, 1, 1])
    assert np.all(bootstrap_within(sums, np.ones(5), owner, 0) == 0.5)


def test_below_50_predictions_the_result_warns():
    log = one_user([0, 1, 2] * 30)
    for share, warns in ((0.2, True), (0.9, False)):
        test = exam(log, Split.parse(f"fraction:{1 - share},0,{share}"), find_preset("honest"))
        warnings = evaluate(test, [MRU()], 0).summary()["warnings"]
        assert any("predictions: below 50" in words for words in warnings) == warns


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(0).random((30, 2))
    assert np.array_equal(bootstrap_means(values, 3), bootstrap_means(values, 3))
    assert not np.array_equal(bootstrap_means(values, 3), bootstrap_means(values, 4))


# --- the real logs, where they are at hand


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        (
            "epm",
            {
                "random": (0.023, 0.068, 0.114),
                "mru": (0.057, 0.610, 0.784),
                "mfu": (0.160, 0.366, 0.457),
                "sr": (0.304, 0.565, 0.680),
                "sr-od": (0.172, 0.322, 0.370),
            },
        ),
        (
            "schonlau",
            {
                "random": (0.014, 0.042, 0.071),
                "mru": (0.209, 0.403, 0.474),
                "mfu": (0.176, 0.342, 0.432),
                "sr": (0.465, 0.709, 0.794),
                "sr-od": (0.577, 0.793, 0.851),
            },
        ),
    ],
)
def test_rivals_on_real_logs_have_the_independent_figures(real_logs, name, figures):
    """HR@1, 3, 5 as measured by others' code on the same logs, to three digits."""
    from nextapp.data.loading import read_log

    log = read_log(real_logs / f"{name}.csv.gz")
    test = exam(log, Split.parse("fraction:0.8,0,0.2"), find_preset("paper"))
    predictors = [Random(), MRU(), MFU(), SR(), SROnDevice()]
    models = evaluate(test, predictors, seed=0).summary()["models"]
    for model, expected in figures.items():
        found = [models[model][metric] for metric in METRICS[:3]]
        np.testing.assert_allclose(found, expected, atol=0.002)
