"""Nothing that a federation starts sends a packet anywhere but over loopback.

The federation runs in a network of its own that has loopback and one way out, a cable whose other
end nobody reads. The kernel counts what goes into it: name lookups, connection attempts, anything.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

SHELL = """
set -e
mount --bind "$1" /etc/resolv.conf
sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 || true
ip link set lo up
ip link add out type veth peer name other
ip addr add 10.99.0.1/24 dev out
ip link set out up
ip link set other up
ip neigh replace 10.99.0.2 lladdr 02:00:00:00:00:02 dev out
ip route add default via 10.99.0.2
shift
sent() { sed -n 's/^ *out: *//p' /proc/net/dev | tr -s ' ' | cut -d' ' -f10; }
export -f sent
sent
"$@" >&2
sent
"""

WITH_A_WAY_OUT = ["unshare", "--map-root-user", "--net", "--mount", "bash", "-c", SHELL, "bash"]


def packets_out(tmp_path, *command, seconds=600):
    """How many packets a command sends by the way out. Its exit code must be 0."""
    names = tmp_path / "resolv.conf"
    names.write_text("nameserver 10.99.0.2\noptions timeout:1 attempts:1\n")
    ran = subprocess.run(
        [*WITH_A_WAY_OUT, names, *command],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    before, after = map(int, ran.stdout.split())
    return after - before


@pytest.fixture
def network(tmp_path):
    try:
        packets_out(tmp_path, "true", seconds=20)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"the kernel gives no network of its own here: {str(error)[:300]}")


@pytest.mark.usefixtures("network")
def test_the_way_out_is_watched(tmp_path):
    look_up = "import socket\ntry: socket.getaddrinfo('telemetry.invalid', 443)\nexcept OSError: 0"
    assert packets_out(tmp_path, sys.executable, "-c", look_up) > 0
    call = "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))"
    assert packets_out(tmp_path, sys.executable, "-c", call) == 1


@pytest.mark.usefixtures("network")
def test_a_round_with_tls_and_node_authentication_sends_nothing_out(tmp_path):
    pytest.importorskip("flwr", reason="Flower has an environment of its own: make flower")
    assert packets_out(tmp_path, sys.executable, HERE / "one_round.py", tmp_path / "data") == 0


@pytest.mark.usefixtures("network")
def test_flower_left_to_itself_would_call_out(tmp_path):
    """The control: the same SuperLink command without our environment sends something."""
    pytest.importorskip("flwr", reason="Flower has an environment of its own: make flower")
    tool = Path(sys.executable).parent / "flower-superlink"
    script = (
        'before=$(sent); "$@" & for _ in {1..600}; do [ "$(sent)" = "$before" ] || break; '
        "sleep 0.2; done; kill $!; wait $! || true"
    )
    command = [tool, "--insecure", "--host", "127.0.0.1", "--port", "9099"]
    home = ["env", "-u", "FLWR_TELEMETRY_ENABLED", "-u", "FLWR_DISABLE_UPDATE_CHECK"]
    home += [f"FLWR_HOME={tmp_path}"]
    assert packets_out(tmp_path, *home, "bash", "-c", script, "bash", *command) > 0
