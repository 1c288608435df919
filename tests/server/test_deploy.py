"""What `deploy/` holds fits the server: alarms, dashboard, unit and proxy."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from servers import Device, ServerProcess, report_of

from fixed_ports import fixed_port
from nextapp.cli.serve import ListenOptions
from nextapp.server import certificates
from nextapp.server.vault import Vault

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_alarms_and_dashboard_name_metrics_that_there_are(tmp_path):
    """Names with their labels; only the certificate's needs TLS."""
    with ServerProcess(tmp_path) as server:
        (token,) = server.enrolled(1)
        assert server.client().report(token, report_of(0, by=token))[0] == 201
        text = server.operator().request("GET", "/metrics")[2].decode()
    there = set(re.findall(r"^([a-z_]+)", text, re.MULTILINE))
    labels = set(re.findall(r"[{,]([a-z]+)=", text))
    dashboard = json.loads((DEPLOY / "grafana/dashboards/nextapp.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alarms = (DEPLOY / "alerts.yml").read_text()
    asked += re.findall(r"expr: (.*)", alarms)
    named = {word for each in asked for word in re.findall(r"\b(?:nextapp|process)_[a-z_]+", each)}
    assert named - there == {"nextapp_certificate_expiry_seconds"}
    used = {word for each in asked for word in re.findall(r"[{,] ?([a-z]+)=", each)} - {"job"}
    assert used <= labels
    why = re.search(r'why=~"([a-z_|]+)"', alarms)[1].split("|")
    assert all(f'why="{word}"' in text for word in why)
    outcomes = re.search(r'outcome=~"([a-z_|]+)"', alarms)[1].split("|")
    assert all(f'outcome="{word}"' in text for word in outcomes)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
@pytest.mark.parametrize(
    "words",
    [
        ["check", "rules", "alerts.yml"],
        ["check", "config", "--syntax-only", "prometheus.yml"],
        ["test", "rules", "alerts_test.yml"],
    ],
)
def test_prometheus_takes_the_alarms(words):
    found = subprocess.run(
        ["promtool", *words], cwd=DEPLOY, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.skipif(
    shutil.which("amtool") is None, reason="apt-get install prometheus-alertmanager"
)
def test_alertmanager_takes_every_severity_there_is():
    found = subprocess.run(
        ["amtool", "check-config", str(DEPLOY / "alertmanager.yml")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr
    rules = (DEPLOY / "alerts.yml").read_text()
    severities = re.findall(r"labels: \{severity: (page|ticket)\}", rules)
    assert len(severities) == rules.count("- alert: ")
    for severity in set(severities):
        routed = subprocess.run(
            ["amtool", "config", "routes", "test", f"--config.file={DEPLOY / 'alertmanager.yml'}",
             f"severity={severity}"], capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert routed.stdout.strip() == severity


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
def test_prometheus_finds_no_fault_in_the_metrics(tmp_path):
    with ServerProcess(tmp_path) as server:
        (token,) = server.enrolled(1)
        assert server.client().report(token, report_of(0, by=token))[0] == 201
        text = server.operator().request("GET", "/metrics")[2]
    found = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (found.returncode, found.stdout + found.stderr) == (0, b"")


def test_the_unit_starts_the_server_with_options_that_there_are():
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read(DEPLOY / "nextapp.service")
    words = unit["Service"]["ExecStart"].split()
    assert words[1] == "serve"
    known = {f"--{name.replace('_', '-')}" for name in ListenOptions.__dataclass_fields__}
    assert {word for word in words if word.startswith("--")} <= known | {"--data"}
    assert unit["Service"]["StateDirectory"] in words[words.index("--data") + 1]
    assert unit["Unit"]["Requires"] == "nextapp.socket"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"  # or five failed starts close the port
    assert unit["Service"]["ExecReload"].endswith("-HUP $MAINPID")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="apt-get install systemd")
def test_systemd_takes_the_unit(tmp_path):
    for name in ("nextapp.service", "nextapp.socket"):
        words = (DEPLOY / name).read_text().replace("/opt/nextapp/bin/nextapp", "/bin/true")
        (tmp_path / name).write_text(words)
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")
    exposure = ["systemd-analyze", "security", "--offline=true", "--threshold=20"]  # 2.0 of 10
    found = subprocess.run(
        [*exposure, str(tmp_path / "nextapp.service")], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
def test_systemd_is_told_when_the_server_is_ready_that_it_lives_and_that_it_stops(tmp_path):
    """With sd_notify as its manual says, and no memory that is written and executed."""
    unit = (DEPLOY / "nextapp.service").read_text()
    assert "\nType=notify\n" in unit
    assert "\nMemoryDenyWriteExecute=yes\n" in unit
    code = (
        "import ctypes, os, sys; "
        "PR_SET_MDWE = 65; ctypes.CDLL(None).prctl(PR_SET_MDWE, 1, 0, 0, 0); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = ["-m", "nextapp", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0nextapp-test-{os.getpid()}")
        systemd.settimeout(120.0)
        server = subprocess.Popen(
            [sys.executable, "-c", code, *command, "--operator", "off"],
            env=os.environ | {
                "NOTIFY_SOCKET": f"@nextapp-test-{os.getpid()}", "WATCHDOG_USEC": "500000"
            },
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        said = [systemd.recv(100)]
        while said[-1] != b"READY=1":
            said.append(systemd.recv(100))
        said = [systemd.recv(100) for _ in range(4)]
        server.terminate()
        while said[-1] != b"STOPPING=1":
            said.append(systemd.recv(100))
        _, log = server.communicate(timeout=120)
    assert set(said) == {b"WATCHDOG=1", b"STOPPING=1"}
    assert server.returncode == 0, log


def test_the_image_is_built_of_all_files_that_the_package_is_made_of():
    """A folder that the wheel takes in was not copied, and the image could not be built."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") and "--from" not in line
              for word in line.split()[1:-1]]  # fmt: skip
    root = DEPLOY.parent
    package = tomllib.loads((root / "pyproject.toml").read_text())
    wheel = package["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "readme" in package["project"]["dynamic"]  # hatch_build.py makes it from README.md
    needed = {"hatch_build.py", "README.md", *wheel["force-include"]}
    needed |= {name.partition("/")[0] for name in wheel["packages"]}
    assert needed <= set(copied)
    assert [name for name in copied if not (root / name).exists()] == []
    let_through = (root / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied} <= set(let_through)


def test_images_and_packages_are_pinned_by_digest():
    words = [(DEPLOY / name).read_text() for name in ("Dockerfile", "compose.yaml")]
    images = re.findall(r"^(?:FROM| +image:) (\S+)", "\n".join(words), re.MULTILINE)
    assert len(images) == 5
    assert all(re.fullmatch(r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", image) for image in images)
    pinned = re.findall(
        r"^([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$",
        (DEPLOY / "requirements.txt").read_text(), re.MULTILINE,
    )  # fmt: skip
    versions = {name: version for name, version, _ in pinned}
    tried = (DEPLOY.parent / "constraints.txt").read_text()
    tried = dict(re.findall(r"^([\w-]+)==(\S+)$", tried.lower().replace("_", "-"), re.MULTILINE))
    assert {name: tried.get(name, versions[name]) for name in versions} == versions
    needed, found = ["nextapp[serve]"], set()
    while needed:  # all that the extra needs, by what is installed here
        name, extra = re.fullmatch(r"([\w-]+)(?:\[(\w+)\])?", needed.pop()).groups()
        for line in requires(name) or ():
            other = Requirement(line)
            if other.marker is None or other.marker.evaluate({"extra": extra or ""}):
                if other.name not in found:
                    needed.append(other.name + "".join(f"[{each}]" for each in other.extras))
                found.add(other.name)
    canonical = {each.lower().replace("_", "-") for each in found} - {"nextapp"}
    assert canonical <= versions.keys() & tried.keys()


@pytest.mark.skipif(shutil.which("nginx") is None, reason="apt-get install nginx-light")
def test_through_the_proxy_a_phone_reports_and_the_rest_is_fenced_off(tmp_path):
    authority, cert, key = certificates.development(tmp_path / "tls")
    port = fixed_port()
    options = {"trusted": ["127.0.0.1"]}
    with ServerProcess(tmp_path / "data", options=options) as server:
        words = (DEPLOY / "nginx.conf").read_text()
        for old, new in (
            ("127.0.0.1:8443", f"127.0.0.1:{server.port}"),
            ("listen 443", f"listen 127.0.0.1:{port}"),
            ("phones.example.org", "localhost"),
            ("/etc/nextapp/chain.pem", str(cert)),
            ("/etc/nextapp/key.pem", str(key)),
        ):
            assert old in words
            words = words.replace(old, new)
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/errors; events {{}}\n"
            f"http {{ {words} }}\n"
        )
        proxy = subprocess.Popen(
            ["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            code = server.code()
            trust = ssl.create_default_context(cafile=str(authority))
            ask = Asking(port, trust)
            status, body = ask("POST", "/v1/enrol", json.dumps({"code": code}).encode())
            assert status == 201
            secret = json.loads(body)["secret"]
            device = Device(secret, server.client().tokens(secret))
            token, report = f"Token {device.token().text}", report_of(1, by=device)
            assert ask("POST", "/v1/report", report, token)[0] == 201
            assert ask("GET", "/v1/digest")[0] == 200
            assert ask("POST", "/v1/tokens", b"", f"Bearer {secret}")[0] == 400
            for fenced in ("/metrics", "/ready", "/openapi.json", "/"):
                assert ask("GET", fenced)[0] == 404
            assert ask("POST", "/v1/report", b"x" * 70_000, token)[0] == 413
            vault = Vault(server.folder / "vault.sqlite")
            assert vault.devices.knows(secret)
            vault.close()
            server.stop()
            assert ask("POST", "/v1/report", report, token)[0] == 502
            enrolling = (ask("POST", "/v1/enrol", b"{}")[0] for _ in range(200))
            assert 503 in enrolling  # more than the proxy lets through
        finally:
            proxy.terminate()
            _, said = proxy.communicate(timeout=120)
    assert "127.0.0.1" not in said + (tmp_path / "errors").read_text()  # who came, and when


class Asking:
    """HTTPS to localhost by the standard library; waits until the proxy is there."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self.port, self.trust = port, trust

    def __call__(self, method, path, body=None, authorization=None) -> tuple[int, bytes]:
        import http.client
        import time

        headers = {"authorization": authorization} if authorization else {}
        for _ in range(600):
            asked = http.client.HTTPSConnection("localhost", self.port, context=self.trust)
            try:
                asked.request(method, path, body, headers)
                answer = asked.getresponse()
                return answer.status, answer.read()
            except ConnectionRefusedError:
                time.sleep(0.1)
            finally:
                asked.close()
        raise TimeoutError("no proxy came up.")
