"""A server as a process of its own, for tests that start, kill and restart it.

python server_process.py FOLDER PORT SETTINGS_JSON LIMITS_JSON OPTIONS_JSON

Prints its port and the operator's. OPTIONS are those of `listening.serve`, and `host`;
`certificate` is a list of two files.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from nextapp.server import listening
from nextapp.server.certificates import ServedCertificate
from nextapp.server.folders import VaultOptions, lock_folder, open_federation
from nextapp.server.gateway import Gateway
from nextapp.server.listening import ServerLimits, start_log
from nextapp.server.operator import Operator

TOKENS = 20


def main() -> None:
    folder, port, settings, limits, options = Path(sys.argv[1]), *sys.argv[2:]
    start_log("json")
    given = json.loads(settings)
    listed = given.pop("listed", True) and not (folder / "settings.json").exists()
    apps = tuple(f"app-{number:04d}" for number in range(12)) if listed else None
    with lock_folder(folder):
        rules = VaultOptions(reports_per_period=given.pop("tokens", TOKENS))
        federation, _ = open_federation(folder, given, apps, now=time.time(), options=rules)
        named = json.loads(options)
        opened = listening.open_socket(named.pop("host", "127.0.0.1"), int(port))
        gateway = Gateway(federation.vault, ServerLimits(**json.loads(limits)))
        operator = listening.open_socket("127.0.0.1", 0)
        if "copies" in named:
            named["copies"] = Path(named["copies"])
        if "certificate" in named:
            named["certificate"] = ServedCertificate(*map(Path, named["certificate"]))
        print(opened.getsockname()[1], operator.getsockname()[1], flush=True)
        listening.serve(
            federation,
            gateway,
            opened,
            operator=(
                Operator(gateway, named.get("certificate")),
                operator,
            ),
            **named,
        )


if __name__ == "__main__":
    main()
