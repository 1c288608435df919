"""What Flower is started with, and how its processes are found again and ended."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from nextapp.cli.commands import app
from nextapp.server.certificates import development, node_key
from nextapp.server.flower import launching
from nextapp.server.flower.launching import Processes, end_members, members

LINK = ["--superlink", "127.0.0.1:1", "--ca", "ca.pem"]
LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A Python beside which Flower's commands seem to be installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("flwr", "flower-superlink", "flower-supernode"):
        (folder / name).touch()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def test_what_flower_would_send_is_off_whatever_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("FLWR_DISABLE_UPDATE_CHECK", "0")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    got = launching.environment(tmp_path / "home")
    assert got["FLWR_TELEMETRY_ENABLED"] == "0"
    assert got["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert got["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert got["RAY_USAGE_STATS_ENABLED"] == "0"
    assert got["FLWR_HOME"] == str(tmp_path / "home")
    assert "127.0.0.1" in got["NO_PROXY"].split(",")


@pytest.mark.usefixtures("tools")
def test_a_superlink_demands_keys_of_its_nodes(tmp_path):
    files = tuple(tmp_path / name for name in ("ca", "cert", "key"))
    safe = launching.superlink("127.0.0.1", 9092, tmp_path / "state.db", files)
    assert "--enable-supernode-auth" in safe
    assert "--insecure" not in safe
    assert "--disable-runtime-dependency-installation" in safe


def test_the_bundle_has_no_code_and_asks_for_nothing_to_be_installed(tmp_path):
    folder = launching.write_bundle(tmp_path / "bundle")
    assert [path.name for path in folder.rglob("*")] == ["pyproject.toml"]
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == []
    for reference in project["tool"]["flwr"]["app"]["components"].values():
        module = reference.partition(":")[0]
        assert find_spec(module) is not None


def test_without_flower_the_pip_line_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ModuleNotFoundError, match=r"install nextapp\[flower\] \(docs/install.md\)"):
        launching.register(tmp_path / "node.pub", "north")


def test_a_node_key_is_an_openssh_key_that_only_its_owner_reads(tmp_path):
    private, public = node_key(tmp_path / "keys" / "north.1")
    key = load_ssh_private_key(private.read_bytes(), None)
    assert key.curve.name == "secp384r1"
    assert key.public_key() == load_ssh_public_key(public.read_bytes())
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert public.name == "north.1.pub"
    before = private.read_bytes()
    assert node_key(tmp_path / "keys" / "north.1") == (private, public)
    assert private.read_bytes() == before
    if shutil.which("ssh-keygen"):
        said = subprocess.run(
            ["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True
        )
        assert said.stdout.startswith("384 ")


def test_a_certificate_names_what_it_was_asked_to(tmp_path):
    _, certificate, _ = development(tmp_path, ["superlink.example.org", "192.0.2.7", "localhost"])
    made = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["superlink.example.org", "localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]


STARTS_ANOTHER = (
    "import subprocess, sys; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], "
    "start_new_session=True); print('started', flush=True)"
)


@LINUX
def test_what_a_process_has_started_in_a_session_of_its_own_is_ended_with_it(tmp_path):
    with Processes(tmp_path / "all") as processes:
        processes.start("parent", [sys.executable, "-c", STARTS_ANOTHER], dict(os.environ))
        give_up = time.monotonic() + 20
        while processes.exit_code("parent") is None and time.monotonic() < give_up:
            time.sleep(0.05)
        assert processes.said("parent") == "started"
        while not members(tmp_path / "all") and time.monotonic() < give_up + 40:
            time.sleep(0.05)  # a process shows its environment a moment after it starts
        (orphan,) = members(tmp_path / "all")
        processes.stop(patience=0.3)
    assert members(tmp_path / "all") == []
    assert not _runs(orphan)


@LINUX
def test_processes_of_a_part_belong_to_the_whole_and_not_the_other_way_round(tmp_path):
    whole, part, other = tmp_path / "a", tmp_path / "a" / "part", tmp_path / "ab"
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    with Processes(part) as of_part, Processes(other) as of_other, Processes(whole) as of_whole:
        of_part.start("one", sleeps, dict(os.environ))
        of_other.start("one", sleeps, dict(os.environ))
        of_whole.start("one", sleeps, dict(os.environ))
        give_up = time.monotonic() + 60
        while len(members(tmp_path)) < 3 and time.monotonic() < give_up:
            time.sleep(0.05)
        assert set(members(whole)) == {of_whole.pid("one"), of_part.pid("one")}
        assert members(part) == [of_part.pid("one")]
        assert end_members(part) == 1
        of_part._children["one"].wait()
        assert members(whole) == [of_whole.pid("one")]
        assert members(other) == [of_other.pid("one")]
        for processes in (of_whole, of_other):
            processes.stop(patience=5)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    "command",
    [
        ["up", "--learn", "seqmf", "--apps", "9"],
        ["run", *LINK, "--learn", "seqmf", "--apps", "9"],
        ["gateway", *LINK, "--node-key", "node", "--host", "192.0.2.1"],
    ],
    ids=lambda command: command[0],
)
def test_what_is_refused_leaves_no_folder(tmp_path, command):
    """No mechanism, or an address that is not of this machine (192.0.2.1 is of nobody's)."""
    found = CliRunner().invoke(app, ["flower", *command, "--data", str(tmp_path / "new")])
    assert found.exit_code == 1
    assert "give --mechanism" in found.output or "cannot be listened on" in found.output
    assert list(tmp_path.iterdir()) == []


@LINUX
def test_a_free_port_is_none_that_another_program_is_given(monkeypatch):
    monkeypatch.undo()  # the real one
    (first_given, _) = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    for _ in range(20):
        port = launching.free_port()
        assert 1024 < port < int(first_given)
        socket.create_server(("127.0.0.1", port)).close()
