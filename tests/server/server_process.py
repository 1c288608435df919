"""A server as a process of its own, for tests that start, kill and restart it.

python server_process.py FOLDER PORT SETTINGS_JSON LIMITS_JSON
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from nextapp.server import single_process
from nextapp.server.gateway import Gateway
from nextapp.server.limits import Limits


def main() -> None:
    folder, port, settings, limits = Path(sys.argv[1]), *sys.argv[2:]
    apps = tuple(f"app-{number:04d}" for number in range(12))
    with single_process.lock_folder(folder):
        federation, _ = single_process.open_federation(
            folder,
            json.loads(settings),
            None if (folder / "settings.json").exists() else apps,
            now=time.time(),
        )
        opened = single_process.open_socket("127.0.0.1", int(port))
        print(opened.getsockname()[1], flush=True)
        single_process.serve(
            federation, Gateway(federation.vault, Limits(**json.loads(limits))), opened
        )


if __name__ == "__main__":
    main()
