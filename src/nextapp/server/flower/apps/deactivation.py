"""Tell a SuperLink that a node is gone, in its name; run as a process of its own.

    python -m nextapp.server.flower.apps.deactivation ADDRESS CA_FILE KEY_FILE NODE_ID

A SuperNode does this when it ends. One that was killed could not, and Flower would refuse the next
one with the same key until two heartbeats have failed to come, which takes up to a minute.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor


def main() -> None:
    address, authority, key_file, node = sys.argv[1:]
    key = load_ssh_private_key(Path(key_file).read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(
            f"{key_file} is not the key of a node: make one by nextapp flower node-key."
        )
    named = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    signed = NodeAuthHttpInterceptor(key, key.public_key())
    with FleetHttpClient.from_server_address(
        address, False, Path(authority).read_bytes(), interceptors=[named, signed]
    ) as client:
        client.DeactivateNode(DeactivateNodeRequest(node_id=int(node)))


if __name__ == "__main__":
    main()
