"""The commands as a person runs them: arguments in; text, files and exit codes out."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from nextapp import __version__
from nextapp import model as equations
from nextapp.cli.commands import app
from nextapp.evaluation import METRICS
from nextapp.wire import Broadcast, Buckets, Crowd, ModelSettings, pack, unpack

SMALL = "synthetic:phones=12,apps=30,days=20"
QUICK = "[seqmf]\nrounds = 2\ndim = 4\n[mf]\nrounds = 2\ndim = 4\n"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quick.toml").write_text(QUICK)
    runner = CliRunner()

    def call(*arguments, code=0, stdin=None):
        result = runner.invoke(app, [str(word) for word in arguments], input=stdin)
        assert result.exit_code == code, result.output + repr(result.exception)
        return " ".join(result.output.split())

    return call


def test_version(run):
    assert run("--version") == f"nextapp {__version__}"


@pytest.mark.parametrize(
    "command",
    [["evaluate"], ["demo"], ["train"], ["predict"], ["data", "describe"], ["data", "make"]],
)
def test_every_command_has_an_example(run, command):
    text = run(*command, "--help")
    assert "Example: nextapp" in text or "Examples: nextapp" in text


def test_evaluate_prints_one_table_and_a_line(run):
    text = run("evaluate", SMALL, "--models", "mru,nextapp")
    assert "summary: HR@1 and HR@5 of the three tables" in text
    assert "among the first five: nextapp " in text
    assert "all launches within a session" not in text


def test_json_on_standard_output_stands_alone(tmp_path):
    done = CliRunner().invoke(app, ["data", "describe", SMALL, "--json", "-"])
    assert json.loads(done.stdout)["n_users"] == 12


def test_evaluate_prints_tables_and_writes_json(run, tmp_path):
    text = run(
        "evaluate", SMALL, "--preset", "paper", "--seed", 3, "--settings", "quick.toml",
        "--json", "out/r.json", "--more",
    )  # fmt: skip
    assert "all launches within a session" in text
    assert "the next different app" in text
    assert "the first launch of a session" in text
    assert "difference in HR@5" in text
    assert "nextapp minus it seqmf minus it" in text
    result = json.loads((tmp_path / "out" / "r.json").read_text())
    assert (result["preset"], result["seed"]) == ("paper", 3)
    assert result["split"] == "fraction:0.8,0,0.2"
    assert result["n_users"] > 0
    assert result["n_predictions"] > 0
    assert set(result["models"]) == {
        "random", "mru", "mfu", "sr", "sr-od", "recents", "kiss", "chromeos", "count-mix", "mf",
        "seqmf", "seqmf-frozen", "nextapp",
    }  # fmt: skip
    for figures in result["models"].values():
        for metric in METRICS:
            low, high = figures["ci95"][metric]
            assert 0 <= low <= figures[metric] <= high <= 1
    assert result["settings"]["seqmf"]["dim"] == 4
    assert result["versions"]["numpy"] == np.__version__
    assert "synthetic, not people's data" in " ".join(result["data"]["notes"])


def test_the_same_seed_gives_the_same_figures(run, tmp_path):
    found = []
    for name in ("a", "b"):
        run("evaluate", SMALL, "--models", "mru,seqmf", "--settings", "quick.toml", "--json", name)
        models = json.loads((tmp_path / name).read_text())["models"]
        found.append([[models[m][metric] for metric in METRICS] for m in ("mru", "seqmf")])
    assert found[0] == found[1]


def test_the_ceiling_stands_beside_the_models_it_is_named_with(run, tmp_path):
    text = run("evaluate", SMALL, "--models", "mru,sr-od,ceiling", "--seed", 4, "--json", "r.json")
    assert "ceiling" in text
    result = json.loads((tmp_path / "r.json").read_text())
    assert list(result["ceiling_minus"]) == ["mru", "sr-od"]
    assert all(gap["HR@5"]["low"] > 0 for gap in result["ceiling_minus"].values())


def test_tuning_is_on_the_way_and_its_choice_in_the_result(run, tmp_path):
    run("evaluate", SMALL, "--models", "mf,seqmf", "--tune", 2, "--json", "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["settings"]["tune"] == 2
    assert result["settings"]["mf"]["inference"] == "none"


def test_options_override_the_settings_file(run, tmp_path):
    (tmp_path / "s.toml").write_text('preset = "authors"\nmodels = ["mru"]\nseed = 5\n')
    run("evaluate", SMALL, "--settings", "s.toml", "--preset", "honest", "--json", "r.json")
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["preset"], result["seed"], list(result["models"])) == ("honest", 5, ["mru"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate", "no-such.csv"], "no-such.csv"),
        (["evaluate", SMALL, "--models", "seqfm"], "did you mean 'seqmf'"),
        (["evaluate", SMALL, "--preset", "honset"], "did you mean 'honest'?"),
        (["evaluate", "log.csv", "--models", "ceiling"], "ceiling needs synthetic data"),
        (["dynamic", "log.csv", "--models", "ceiling"], "ceiling needs synthetic data"),
        (["evaluate", SMALL, "--split", "days:400,1,1,1"], "a split is written"),
        (["evaluate", "synthetic:phone=3"], "phones"),
        (["evaluate", SMALL, "--settings", "none.toml"], "none.toml"),
        (["evaluate", SMALL, "--dates", "h"], "dates must be day/month or month/day"),
        (["data", "make", "log.csv", "--out", "x.csv"], "make writes synthetic phones"),
        (["data", "make", SMALL, "--out", "x.xls"], "must end in .csv or .parquet"),
        (["train", SMALL, "--out", "quick.toml/m"], "cannot write quick.toml/m"),
        (["predict", "no-model", "--history", "-"], "no-model"),
    ],
)
def test_what_goes_wrong_is_one_clear_line_and_code_1(run, arguments, says):
    text = run(*arguments, code=1)
    assert text.startswith("error: ")
    assert says in text
    assert "Traceback" not in text


def test_a_typing_error_in_a_settings_file_names_the_nearest_key(run, tmp_path):
    (tmp_path / "s.toml").write_text("[seqmf]\nlerning_rate = 1\nlambda = 2\n")
    assert "unknown setting 'lerning_rate'" in run(
        "evaluate", SMALL, "--settings", "s.toml", code=1
    )


def test_bad_rows_stop_or_are_counted(run, tmp_path):
    rows = ["user_id,timestamp,app_name"]
    rows += [f"u{k % 3},{1_600_000_000 + 60 * k},app{k % 4}" for k in range(60)]
    rows[20] = "u1,yesterday,app1"
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    arguments = ["evaluate", "log.csv", "--models", "mru,mfu"]
    text = run(*arguments, code=1)
    assert "line 21" in text
    assert "yesterday" in text
    assert "--skip-bad-rows" in text
    assert "bad rows skipped: 1 (unreadable time: 1)" in run(*arguments, "--skip-bad-rows")


def test_columns_of_other_names_are_read_by_option(run, tmp_path):
    rows = ["who;app;at"]
    rows += [f"u{k % 3};app{k % 4};{1_600_000_000_000 + 60_000 * k}" for k in range(60)]
    (tmp_path / "log.csv").write_text("\n".join(rows))
    run(
        "evaluate", "log.csv", "--models", "mru", "--user-column", "who", "--app-column", "app",
        "--time-column", "at",
    )  # fmt: skip


def test_describe_shows_sizes_and_activity(run, tmp_path):
    text = run("data", "describe", SMALL, "--json", "d.json")
    assert "launches by hour" in text
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["n_users"] == 12
    assert sum(found["launches_by_day"]) == found["n_launches_collapsed"]
    assert sum(found["launches_by_hour"]) == found["n_launches_collapsed"]
    assert max(found["users_by_day"]) <= 12


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_made_phones_measure_the_same_from_the_file(run, tmp_path, ending):
    run("data", "make", SMALL, "--out", f"log.{ending}", "--seed", 4)
    for source, name in ((SMALL, "a"), (f"log.{ending}", "b")):
        run("evaluate", source, "--models", "mru,sr", "--seed", 4, "--json", name)
    first, second = (json.loads((tmp_path / name).read_text()) for name in "ab")
    for model in ("mru", "sr"):
        assert [first["models"][model][m] for m in METRICS] == [
            second["models"][model][m] for m in METRICS
        ]


UNKNOWN = """user_id,timestamp,app_name
u,2024-01-01 10:00:00,app-0001
u,2024-01-01T10:00:20Z,Chess
"""


@pytest.mark.parametrize("name", ["nextapp", "seqmf"])
def test_train_then_predict(run, tmp_path, name):
    run("train", SMALL, "--out", "m", "--settings", "quick.toml", "--model", name)
    plain = run("predict", "m", "--history", "-", "-n", 2,
                stdin="app-0001\napp-0002\napp-0001\n")  # fmt: skip
    assert "1. app-000" in plain
    assert "3." not in plain
    (tmp_path / "h.csv").write_text(UNKNOWN)
    known = run("predict", "m", "--history", "h.csv", "--json", "p.json")
    assert "not in the model's catalogue" in known
    assert "alone: Chess" in known
    result = json.loads((tmp_path / "p.json").read_text())
    assert result["model"] == name
    assert result["unknown_apps"] == ["Chess"]
    assert sorted(result["predictions"]) == ["Chess", "app-0001"]
    shares = [reason["share"] for reason in result["reasons"]]
    # what is left to 1 is an app that was never launched here
    assert shares == [None, None] if name == "seqmf" else 0.5 < sum(shares) < 1.0


def test_a_model_of_nextapp_predicts_as_habits_that_start_from_the_phones_of_the_log(run, tmp_path):
    """On the log b always follows a. A phone on which b, c, a were launched once each is told b,
    and so is one of c, b, a: to a phone alone b and c are the same with their places exchanged."""
    rows = [f"u{user},{60 * n},{'ab'[n % 2]}" for user in range(5) for n in range(200)]
    (tmp_path / "log.csv").write_text("user_id,timestamp,app_name\n" + "\n".join(rows) + "\n")
    run("train", "log.csv", "--out", "m")
    for history in ("b\nc\na\n", "c\nb\na\n"):
        told = run("predict", "m", "--history", "-", "--why", "--json", "p.json", stdin=history)
        result = json.loads((tmp_path / "p.json").read_text())
        assert result["predictions"][0] == "b"
        assert result["reasons"][0]["speaks"]["crowd"] > 0.2
        assert f"1. b {result['reasons'][0]['share']:.0%}" in told
        assert "crowd +" in told.partition("2.")[0]


def test_a_model_of_seqmf_predicts_by_the_light_scores(run, tmp_path):
    """q_i^T (p + Σ q_j), eq. (8), with p solved by the equations as printed."""
    run("train", SMALL, "--out", "m", "--settings", "quick.toml", "--model", "seqmf")
    tensors, words = unpack((tmp_path / "m").read_bytes())
    Q, apps = np.array(tensors["app_vectors"]), json.loads(words["apps"])
    settings = ModelSettings(**json.loads(words["settings"]))
    history = [3, 5, 3, 8, 5]
    stdin = "".join(f"{apps[app]}\n" for app in history)
    told = run("predict", "m", "--history", "-", "--why", "--json", "p.json", stdin=stdin)
    result = json.loads((tmp_path / "p.json").read_text())
    counts = np.bincount(history, minlength=len(apps))
    c = equations.confidence(counts, settings.alpha, settings.gamma)
    h = equations.short_term(equations.transitions(history, len(apps), settings.reading), Q)
    p = equations.user_vector(Q, c, (counts > 0) * 1.0, h, settings.lam)
    for reason in result["reasons"]:
        q = Q[apps.index(reason["app"])]
        assert reason["score"] == pytest.approx(q @ (p + Q[history].sum(axis=0)))
    assert "score" in told
    assert "user vector" in told


def test_a_model_file_is_safetensors_with_the_settings_inside(run, tmp_path):
    safetensors = pytest.importorskip("safetensors")
    run("train", SMALL, "--out", "q", "--settings", "quick.toml", "--seed", 9, "--model", "seqmf")
    with safetensors.safe_open(tmp_path / "q", framework="numpy") as file:
        words = file.metadata()
        assert file.get_tensor("app_vectors").shape == (30, 4)
    assert json.loads(words["training"])["dim"] == 4
    assert words["seed"] == "9"
    run("train", SMALL, "--out", "m")
    with safetensors.safe_open(tmp_path / "m", framework="numpy") as file:
        words = file.metadata()
        assert file.get_tensor("crowd.popularity").sum() == pytest.approx(1)
    assert len(json.loads(words["apps"])) == 30


def test_a_model_file_of_an_earlier_version_says_what_to_do(run, tmp_path):
    (tmp_path / "m").write_bytes(pack({}, {"kind": "nextapp model", "version": "1"}))
    says = run("predict", "m", "--history", "-", stdin="mail\n", code=1)
    assert "version 1" in says
    assert "train it again" in says


def test_predict_takes_the_broadcast_of_a_server_that_learnt_a_crowd(run, tmp_path):
    """Of a catalogue of names, and of one that knows apps by hash."""
    crowd = Crowd(np.array([0.5, 0.5]), np.array([0, 1, 1]), np.array([1]), np.array([0.9]))
    named = Broadcast(3, np.zeros((2, 1)), ModelSettings(), ("mail", "maps"), crowd=crowd)
    hashes = Buckets(1 << 16, "", np.zeros(0, np.int64))
    slots = np.array([hashes.bucket("mail"), hashes.bucket("maps")])
    hashed = replace(named, apps=(), buckets=replace(hashes, slots=slots))
    for broadcast in (named, hashed):
        (tmp_path / "m").write_bytes(broadcast.to_bytes())
        for stdin in ("maps\nchat\nmail\n", "chat\nmaps\nmail\n"):
            told = run("predict", "m", "--history", "-", stdin=stdin)
            assert "1. maps" in told
            assert "by this history alone: chat" in told
    (tmp_path / "m").write_bytes(replace(named, crowd=None).to_bytes())
    assert "no crowd yet" in run("predict", "m", "--history", "-", stdin=stdin, code=1)


@pytest.mark.parametrize(
    ("history", "says"),
    [
        ("", "standard input: the file is empty"),
        (
            "timestamp,app_name\nnoon,app-0001\n",
            "standard input, line 2, column timestamp: expected a time",
        ),
        ("timestamp,app_name\n5,\n", "standard input, line 2, column app_name: expected the name"),
        ("user_id,timestamp,app_name\na,1,x\nb,2,y\n", "choose one with --user, such as a, b"),
        ("user_id,app_name\na,x\n", "None is 'timestamp'"),
        ("app_name\nx\n", "None is 'timestamp'"),
        ('{"at": 1, "meta": {"app": "x"}}\n', "Name the column of the app with --app-column"),
    ],
)
def test_a_history_that_cannot_be_read_says_where(run, history, says):
    run("train", SMALL, "--out", "m", "--settings", "quick.toml")
    assert says in run("predict", "m", "--history", "-", stdin=history, code=1)


def test_a_history_takes_the_options_of_a_log(run, tmp_path):
    """Bugs: predict had none of them, explain --history ignored them."""
    run("train", SMALL, "--out", "m", "--settings", "quick.toml")
    rows = "".join(f"u{n % 2},3/{n + 1}/24 8:05 AM,app-000{n % 3}\n" for n in range(9))
    (tmp_path / "us.csv").write_text("user_id,when,what\n" + rows)
    asked = "--history us.csv --time-column when --app-column what --dates month/day --user u1"
    run("predict", "m", *asked.split(), "--json", "p.json")
    assert json.loads((tmp_path / "p.json").read_text())["n_launches"] == 4
    assert "u1: 4 launches" in run("explain", *asked.split())
    assert "unknown user 'u3'" in run("explain", *asked.replace("u1", "u3").split(), code=1)


def test_what_train_says_next_works(run, tmp_path):
    """Bug: of a log of several users it did not."""
    run("data", "make", SMALL, "--out", "log.csv")
    said = run("train", "log.csv", "--out", "m")
    run(*said.partition("Next: nextapp ")[2].split())


def test_a_damaged_model_is_refused(run, tmp_path):
    run("train", SMALL, "--out", "m", "--settings", "quick.toml")
    data = bytearray((tmp_path / "m").read_bytes())
    data[-5] ^= 1
    (tmp_path / "m").write_bytes(data)
    assert "checksum" in run("predict", "m", "--history", "-", stdin="app-0001\n", code=1)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("predict gone.safetensors --history quick.toml", "there is no file gone.safetensors."),
        ("simulate --phones 10 --mechanism subset --epsilon 1", "unknown mechanism 'subset'"),
        ("simulate --phones 10 --mechanism foo", "unknown mechanism 'foo'. Known: identity"),
        ("serve --data new --learn seqmf --apps 9", "give --mechanism"),
        (
            "serve --data new --learn seqmf --mechanism walsh --epsilon 1 --clip 1",
            "need a catalogue",
        ),
        ("serve --data new --mechanism walsh --apps gone.txt", "there is no file 'gone.txt'"),
        ("serve --data new --apps 9 --mechanism walsh --epsilon 1 --clip 1", "needs no clip"),
    ],
)
def test_what_is_refused_is_one_clear_line_and_leaves_nothing_behind(run, tmp_path, command, says):
    text = run(*command.split(), code=1)
    assert says in text
    assert "Errno" not in text
    assert {file.name for file in tmp_path.iterdir()} == {"quick.toml"}


def test_the_help_of_evaluate_names_every_model(run):
    text = run("evaluate", "--help")
    for name in ("seqmf-frozen", "nextapp"):
        assert f" {name}" in text


def test_the_demo_leaves_a_folder_with_table_plot_and_settings(run, tmp_path, monkeypatch):
    from nextapp.studies import experiment

    monkeypatch.setattr(experiment, "DEMO", SMALL)
    run("demo", "--out", "d")
    names = {file.name for file in (tmp_path / "d").iterdir()}
    assert names == {
        "table.csv", "settings.toml", "result.json", "hit-rates.svg", "hit-rates.png",
    }  # fmt: skip
    assert (tmp_path / "d" / "hit-rates.png").read_bytes().startswith(b"\x89PNG")
    again = run("evaluate", SMALL, "--settings", "d/settings.toml", "--json", "r.json")
    assert "seqmf" in again
    first = json.loads((tmp_path / "d" / "result.json").read_text())
    second = json.loads((tmp_path / "r.json").read_text())
    for model, figures in first["models"].items():
        assert [figures[m] for m in METRICS] == [second["models"][model][m] for m in METRICS]


def test_evaluate_tells_calibration_and_draws_it(run, tmp_path):
    text = run(
        "evaluate",
        SMALL,
        "--models",
        "recents,ppm",
        "--more",
        "--plot",
        "out/c",
        "--json",
        "r.json",
    )
    assert "ECE of the first" in text
    assert "new per launch" in text
    found = json.loads((tmp_path / "r.json").read_text())["models"]
    assert f"{found['ppm']['steadiness']['new_per_launch'][0]['mean']:.2f}" in text
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"c.svg", "c.png"}
