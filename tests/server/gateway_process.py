"""One of several gateways as a process of its own, without Flower: rounds are opened in its vault.

python gateway_process.py FOLDER PORT

Prints its port.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nextapp.server import listening
from nextapp.server.gateway import Gateway
from nextapp.server.vault import Vault


def main() -> None:
    folder, port = sys.argv[1:]
    vault = Vault(Path(folder) / "vault.sqlite")
    opened = listening.open_socket("127.0.0.1", int(port))
    print(opened.getsockname()[1], flush=True)
    gateway = Gateway(vault, one_of_many=True)
    listening.serve(None, gateway, opened, trusted=["127.0.0.1"])


if __name__ == "__main__":
    main()
