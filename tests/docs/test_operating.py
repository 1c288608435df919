"""What the pages for operators tell to type and to expect: commands run, defaults are those."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from fixed_ports import fixed_port
from nextapp.cli.admin import enrol_code
from nextapp.cli.commands import app
from nextapp.cli.serve import ListenOptions, VaultOptions
from nextapp.learners import SLOTS_BY_BUCKET
from nextapp.phone.commands import parser as phone_parser
from nextapp.phone.core import Limits
from nextapp.server.federation import CHECKPOINTS_KEPT
from nextapp.server.folders import settings_for
from nextapp.server.listening import QUIET_SECONDS, ServerLimits
from nextapp.server.settings import FederationSettings

ROOT = Path(__file__).parents[2]
PAGES = ("deploy.md", "operate.md", "federation-flower.md")


def text(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def code_lines(page: str) -> list[str]:
    """The commands of a page, one by one, without what is said of them."""
    whole = text(page).replace("\\\n", " ")
    lines = re.findall(r"^ {4}(\S.*)$", whole, re.MULTILINE)
    parts = (re.split(r" && |  +# ", line) for line in lines)
    return [part.strip() for line in parts for part in line if not part.startswith("#")]


def nextapp_words(line: str) -> list[str] | None:
    """What follows `nextapp` where a command begins with it, also within another one's."""
    found = re.match(
        r"(?:runuser -u nextapp -- |docker .* exec server )?nextapp ((?!\S*:).*)$", line
    )
    return found and shlex.split(found[1])


TYPED = [(page, line) for page in PAGES for line in code_lines(page) if nextapp_words(line)]


@pytest.mark.parametrize(("page", "line"), TYPED)
def test_every_command_is_taken_with_its_values(page, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, *words = nextapp_words(line)
    if first == "phone":
        phone_parser().parse_args(words)
        return
    command, name = app, first
    while True:
        context = command.make_context("nextapp", [name, *words], resilient_parsing=True)
        _, command, _ = command.resolve_command(context, [name])
        if not hasattr(command, "commands"):
            break
        name, *words = words
    command.make_context(name, list(words)).close()


def test_a_process_that_issues_tokens_has_an_operators_port_of_its_own():
    """With the server's it does not start; with none the alarm NextappNoReports never sounds."""
    files = ["deploy/nginx.conf", "docs/how-to/commands.md", "src/nextapp/cli/serve.py"]
    whole = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
    lines = re.findall(r"nextapp (issue --data[^`\"\n]*)", whole)
    assert len(lines) == len(files)
    for words in map(shlex.split, lines):
        context = app.make_context("nextapp", words, resilient_parsing=True)
        _, command, _ = app.resolve_command(context, words[:1])
        given = command.make_context("issue", words[1:]).params
        assert given["operator"] not in {ListenOptions.operator, "off"}


def test_other_commands_name_files_and_services_that_there_are():
    made = {"deploy/tls/", "deploy/tls", "deploy/operator-secret", "deploy/"}
    units = {path.name for path in (ROOT / "deploy").iterdir()}
    services = re.findall(r"^  (\w+):$", (ROOT / "deploy/compose.yaml").read_text(), re.MULTILINE)
    n_units = n_services = 0
    for page in PAGES:
        for line in code_lines(page):
            for name in re.findall(r"(?<!\S)((?:deploy/|constraints)\S*)", line):
                assert name in made or (ROOT / name).is_file(), line
            if line.startswith("systemctl"):
                named = re.findall(r"nextapp\.\w+", line)
                assert set(named) <= units, line
                n_units += len(named)
            if line.startswith("docker compose"):
                words = shlex.split(line.partition(" nextapp ")[0])[4:]
                named = [word.split(":")[0] for word in words if word.split(":")[0] in services]
                assert named or words == ["up", "--detach"], line
                n_services += len(named)
    assert (n_units, n_services) == (2, 3)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("round-*")]


@pytest.mark.slow
def test_the_commands_of_running_a_server_run_one_after_the_other(tmp_path):
    """As they stand in the pages, with other ports and folders, and four phones of 200."""
    port = str(fixed_port())
    other = {
        "8443": port, "https://phones.example.org": f"https://127.0.0.1:{port}",
        "--ca ca.pem": "--ca federation/tls/ca.pem", "/var/lib/nextapp": "federation",
        "/data ": "federation ", "--phones 200 --rounds 5": "--phones 4 --rounds 2",
        "--to 41": "--to 1", "--code NAME": "--code 'first phones'",
        "/var/backups/nextapp": "backups",
    }  # fmt: skip
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "home")}
    program = [sys.executable, "-m", "nextapp"]
    server, code, ran = None, "", []

    def stop():
        if server is not None:
            server.terminate()
            server.communicate(timeout=120)

    try:
        for line in [*code_lines("deploy.md"), *code_lines("operate.md")]:
            whole = line
            for old, new in other.items():
                whole = whole.replace(old, new)
            words = nextapp_words(whole.replace("CODE", code))
            if words is None and not line.startswith("cp other-disk"):
                continue
            if words is None:
                here, there = (
                    tmp_path / name / "checkpoints" for name in ("federation", "other-disk")
                )
                end = time.monotonic() + 120.0
                while set(names_in(here)) - set(names_in(there)):
                    assert time.monotonic() < end
                    time.sleep(0.1)
                command = ["sh", "-c", line]
            elif words[0] == "serve":
                stop()
                words += ["--port", port, "--operator", "off", "--minimum", "4", "--grace", "0"]
                server = subprocess.Popen(
                    [*program, *words], cwd=tmp_path, env=environment,
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                )  # fmt: skip
                assert f"127.0.0.1:{port}" in server.stdout.readline(), line
                ran.append(line)
                continue
            else:
                command = [*program, *words]
            if "roll-back" in line:
                stop()
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True,
                check=False, timeout=600,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
            if "enrol-code" in line:
                code = done.stdout.split()[0]
            ran.append(line)
    finally:
        stop()
    assert {line for page, line in TYPED if page != "federation-flower.md"} <= set(ran)
    restored = names_in(tmp_path / "federation-2/checkpoints")
    assert set(restored) >= set(names_in(tmp_path / "other-disk/checkpoints"))


def test_the_settings_shown_as_defaults_are_those_of_a_new_server():
    block = text("operate.md").split("as TOML for `--settings`:")[1].split("An unknown key")[0]
    shown = tomllib.loads(re.sub(r"^ {4}", "", block, flags=re.MULTILINE))
    made = asdict(settings_for(Path("/nowhere"), {}, None))
    model, kept = shown.pop("model"), made.pop("model")
    assert shown == {name: made[name] for name in shown}
    assert model.items() <= kept.items()
    assert {"slots", "options", "minimum", "grace", "epsilon"} <= shown.keys()


LIMITS, DEVICES, NEW = ServerLimits(), VaultOptions(), settings_for(Path("/nowhere"), {}, None)
DEFAULTS = [
    ("deploy.md", r"asked: ([\d,]+) with a list, else (\d+)",
     [FederationSettings.slots, SLOTS_BY_BUCKET]),
    ("deploy.md", r"how long that is \| (\d+) in (\d+) days",
     [DEVICES.reports_per_period, DEVICES.key_days]),
    ("deploy.md", r"phones allow ε (\d) per report and per day, and (\d) per lifetime",
     [Limits.per_report, Limits.lifetime]),
    ("deploy.md", r"no more then \| (\d+):", [NEW.grace]),
    ("deploy.md", r"asks for one report of ε = (\d) per round", [NEW.epsilon]),
    ("operate.md", r"in total, or .*; (\d+) per address .* and ([\d,]+) per IPv6 /48",
     [LIMITS.address_connections, LIMITS.site_connections]),
    ("operate.md", r"included \| ([\d,]+) in total", [LIMITS.connections]),
    ("operate.md", r"head and body \| (\d+) s; (\d+) s, (\d+) KiB of head",
     [LIMITS.handshake_seconds, LIMITS.request_seconds, LIMITS.head_bytes / 1024]),
    ("operate.md", r"for tokens \| (\d+) at once, then one every (\d+) s",
     [LIMITS.device_burst, LIMITS.device_seconds]),
    ("operate.md", r"codes of an address \| (\d+) at once, then one every (\d+) s",
     [LIMITS.address_burst, LIMITS.address_seconds]),
    ("operate.md", r"in total \| (\d+) at once, then (\d+)/s",
     [LIMITS.enrol_burst, 1 / LIMITS.enrol_seconds]),
    ("operate.md", r"an address \| (\d+) MB at once, then (\d+) MB/s",
     [LIMITS.download_bytes / 1e6, LIMITS.download_rate / 1e6]),
    ("operate.md", r"at ([\d,]+) reports are answered by 503 `busy`", [LIMITS.waiting_reports]),
    ("operate.md", r"at most once in (\d+) s", [QUIET_SECONDS]),
    ("operate.md", r"after `--key-days` \((\d+)\)", [DEVICES.key_days]),
]  # fmt: skip


@pytest.mark.parametrize(("page", "words", "values"), DEFAULTS, ids=lambda each: str(each)[:40])
def test_a_figure_of_a_page_is_the_default(page, words, values):
    (found,) = re.findall(words, text(page))
    shown = (found,) if isinstance(found, str) else found
    assert [float(number.replace(",", "")) for number in shown] == values


def test_what_is_said_in_words_is_the_default():
    assert CHECKPOINTS_KEPT == 10
    assert "the last ten are kept" in text("operate.md")
    assert DEVICES.enrolled_days == 365
    assert "**Enrolments** expire after a year" in text("operate.md")
    assert f"own listener, `{ListenOptions.operator}`" in text("operate.md")
    (hours,) = (each.default for each in enrol_code.params if each.name == "hours")
    assert f"(`--hours`, {hours:g} by default)" in text("operate.md")
