"""One round of a federation with TLS and node authentication, as a process of its own.

python one_round.py FOLDER: exits with 0 if the round was played, all phones' reports in it, and a
node whose key nobody registered was turned away.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from regions import APPS, SETTINGS, Region

from nextapp.server.certificates import node_key
from nextapp.server.flower import launching
from nextapp.server.flower.gateway_rounds import Pace
from nextapp.server.flower.launching import Loopback
from nextapp.server.folders import create_or_resume


def main() -> None:
    data = Path(sys.argv[1])
    (data / "coordinator").mkdir(parents=True)
    create_or_resume(data / "coordinator", SETTINGS, APPS)
    pace = Pace(gateways=2, poll=1.0)
    with Loopback(data, n_gateways=2, rounds=1, pace=pace) as federation:
        stranger = subprocess.Popen(
            launching.supernode_command(
                federation.link, launching.free_port(), data, node_key(data / "stranger")[0]
            ),
            env=launching.environment(data / "stranger-home"),
        )
        for url, name, numbers in zip(
            federation.urls, federation.ports, (range(5), range(5, 10)), strict=True
        ):
            region = Region(url, data / name, numbers)
            region.report(region.broadcast(0))
        if not federation.wait(300):
            sys.exit(f"the round was not played:\n{federation.processes.said('run')}")
        code = stranger.poll()
        if code is None:
            stranger.kill()
        if not code:
            sys.exit(f"a node with an unknown key was not turned away: its exit code is {code}.")


if __name__ == "__main__":
    main()
