"""A server as a process of its own, for tests that start, kill and restart it.

python server_process.py FOLDER PORT SETTINGS_JSON LIMITS_JSON
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from nextapp.federation import embedded
from nextapp.federation.gateway import Gateway
from nextapp.federation.limits import Limits


def main() -> None:
    folder, port, settings, limits = Path(sys.argv[1]), *sys.argv[2:]
    apps = tuple(f"app-{number:04d}" for number in range(12))
    with embedded.held(folder):
        federation, _ = embedded.made(
            folder,
            json.loads(settings),
            None if (folder / "settings.json").exists() else apps,
            now=time.time(),
        )
        opened = embedded.listening("127.0.0.1", int(port))
        print(opened.getsockname()[1], flush=True)
        embedded.serve(federation, Gateway(federation.vault, Limits(**json.loads(limits))), opened)


if __name__ == "__main__":
    main()
