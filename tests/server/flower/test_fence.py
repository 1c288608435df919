"""The pieces for separate machines, started by their commands, with nginx as the fence between."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from regions import APPS, SETTINGS, Region

from nextapp.server.certificates import development, node_key
from nextapp.server.federation import checkpoints
from nextapp.server.flower import launching
from nextapp.server.flower.gateway_rounds import Link
from nextapp.server.flower.launching import Processes

pytest.importorskip("flwr", reason="Flower has an environment of its own: make flower")

CONFIGURATION = Path(__file__).parents[3] / "deploy" / "nginx-flower.conf"
NOBODY = 599  # what `status` says where nobody answers
NEXTAPP = [sys.executable, "-m", "nextapp", "flower"]

MAIN = """\
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.err;
events {{ }}
http {{
    access_log {folder}/nginx.access;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/fence.conf;
}}
"""


def nginx_command(folder, inner, outer):
    """nginx with the configuration as it is in the repository but for ports, name and paths."""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("nginx is not installed: apt-get install nginx")
    text = CONFIGURATION.read_text(encoding="utf-8")
    for there, here in (
        ("127.0.0.1:9092", f"127.0.0.1:{inner}"),
        ("listen 443 ssl", f"listen 127.0.0.1:{outer} ssl"),
        ("superlink.example.org", "localhost"),
        ("/etc/nextapp/superlink", str(folder / "tls")),
    ):
        assert there in text
        text = text.replace(there, here)
    (folder / "fence.conf").write_text(text, encoding="utf-8")
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder), encoding="utf-8")
    return [program, "-c", str(folder / "nginx.conf"), "-p", str(folder)]


@pytest.fixture(scope="module")
def fenced(tmp_path_factory):
    """A SuperLink with TLS and node authentication on one port, the fence on another."""
    folder = tmp_path_factory.mktemp("fence")
    inner, outer = launching.free_port(), launching.free_port()
    ca, cert, key = development(folder / "tls")
    command = nginx_command(folder, inner, outer)
    with Processes(folder) as processes:
        own = dict(os.environ)
        processes.start("nginx", command, own)
        superlink = ["superlink", "--data", folder / "superlink", "--port", inner, "--ca", ca]
        superlink += ["--cert", cert, "--key", key]
        processes.start("superlink", [*NEXTAPP, *map(str, superlink)], own)
        yield folder, processes, ca, inner, outer


def status(ca, port, path, method="POST"):
    request = urllib.request.Request(f"https://localhost:{port}{path}", b"", method=method)
    trust = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), trust)
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError:
        return NOBODY


def control(folder, ca, port, *command):
    """A command of Flower's own command line against the SuperLink at this port."""
    home = folder / f"operator-{port}"
    launching.connect(home, Link(f"localhost:{port}", ca))
    tool = str(Path(sys.executable).parent / "flwr")
    return subprocess.run(
        [tool, *map(str, command)],
        env=launching.environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_gateway_plays_a_round_through_the_fence(fenced):
    folder, processes, ca, inner, outer = fenced
    give_up = time.monotonic() + 240
    while (
        status(ca, outer, "/v1/fleet/activate-node") >= 502
    ):  # until nginx and SuperLink are there
        assert time.monotonic() < give_up, processes.said("superlink")
        time.sleep(0.5)
    private, public = node_key(folder / "node")
    done = control(folder, ca, inner, "supernode", "register", public, launching.CONNECTION)
    assert done.returncode == 0, done.stdout
    port = launching.free_port()
    gateway = ["gateway", "--data", folder / "gateway", "--superlink", f"localhost:{outer}"]
    gateway += ["--ca", ca, "--node-key", private, "--port", port, "--operator", "off"]
    processes.start("gateway", [*NEXTAPP, *map(str, gateway)], dict(os.environ))
    settings = "".join(f"{key} = {value!r}\n" for key, value in SETTINGS.items())
    (folder / "settings.toml").write_text(settings, encoding="utf-8")
    run = ["run", "--data", folder / "coordinator", "--superlink", f"localhost:{inner}"]
    run += ["--ca", ca, "--rounds", "1", "--poll", "1", "--apps", len(APPS)]
    run += ["--settings", folder / "settings.toml"]
    processes.start("run", [*NEXTAPP, *map(str, run)], dict(os.environ))
    vault = folder / "gateway" / "vault.sqlite"
    while not vault.exists():
        assert time.monotonic() < give_up, processes.said("gateway")
        time.sleep(0.2)
    time.sleep(1)
    region = Region(f"http://127.0.0.1:{port}", folder / "gateway", range(10))
    region.report(region.broadcast(0))
    give_up = time.monotonic() + 240
    while processes.exit_code("run") is None and time.monotonic() < give_up:
        time.sleep(0.5)
    assert processes.exit_code("run") == 0, processes.said("run")
    assert "one step, reports: 10" in processes.said("run")
    assert checkpoints(folder / "coordinator" / "checkpoints")[0].name.endswith("1.safetensors")


def test_control_calls_are_refused_at_the_fence(fenced):
    folder, _, ca, _, outer = fenced
    _, public = node_key(folder / "stranger")
    bundle = launching.write_bundle(folder / "bundle")
    for command in (
        ["supernode", "register", public, launching.CONNECTION],
        ["supernode", "list", launching.CONNECTION],
        ["run", bundle, launching.CONNECTION],
        ["list", launching.CONNECTION],
    ):
        refused = control(folder, ca, outer, *command)
        assert refused.returncode != 0
        assert "403" in refused.stdout + refused.stderr


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol/start-run",
        "/v1/fleet/pull-messages/../../control/start-run",
        "//v1/control/start-run",
        "/V1/FLEET/pull-messages",
        "/v1/fleet/",
        "/v1/fleet/pull-messages/",
        "/health",
        "/docs",
        "/openapi.json",
        "/",
    ],
)
def test_no_other_path_passes_the_fence(fenced, path):
    _, _, ca, _, outer = fenced
    assert status(ca, outer, path) == 403


def test_nodes_are_not_asked_by_other_methods(fenced):
    _, _, ca, _, outer = fenced
    assert status(ca, outer, "/v1/fleet/pull-messages", "GET") == 403
    assert status(ca, outer, "/v1/fleet/pull-messages", "POST") not in (403, 404)


def test_the_list_of_paths_is_that_of_the_flower_that_is_installed():
    from flwr.superlink.routers.fleet.router import router

    installed = {route.path for route in router.routes}
    text = CONFIGURATION.read_text(encoding="utf-8")
    listed = text.partition("^/v1/fleet/(")[2].partition(")$")[0].split("|")
    assert installed == {f"/v1/fleet/{name}" for name in listed}
