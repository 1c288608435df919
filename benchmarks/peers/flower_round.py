"""A round of Flower's simulation, the phone's step in NumPy, harmony: seconds a phone, best of 3.

python flower_round.py FLEET.npz CLIP EPSILON LAM   (columns of a fleet; app_vectors; α = 0, γ = 1)

One client at a time on every core. The first round is a warm-up: Ray's start and the imports of its
workers are not counted.
"""

import functools
import json
import math
import os
import sys
import tempfile
import time

os.environ |= {
    "OPENBLAS_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

import numpy as np

from phone import gradient, harmony

ROUNDS = 4  # the first is a warm-up


@functools.cache
def fleet(file):
    """Read once by each of Ray's workers."""
    return dict(np.load(file)), np.random.default_rng()


def train(message, context):
    from flwr.app import ConfigRecord, Message, RecordDict

    settings = message.content["settings"]
    data, rng = fleet(settings["fleet"])
    u = context.node_config["partition-id"]
    own = slice(*data["app_starts"][u : u + 2])
    moves = slice(*data["transition_starts"][u : u + 2])
    (Q,) = message.content["model"].to_numpy_ndarrays()
    apps = data["apps"][own]
    F = gradient(
        Q, apps, data["counts"][own],
        data["previous"][moves], data["following"][moves], data["times"][moves], settings["lam"],
    )  # fmt: skip
    report = harmony(rng, apps, F, len(Q), settings["clip"], settings["epsilon"])
    return Message(RecordDict({"report": ConfigRecord({"report": list(report)})}), reply_to=message)


def one_round(grid, nodes, Q, settings):
    """Q after a round of all nodes."""
    from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

    content = RecordDict({"model": ArrayRecord([Q]), "settings": ConfigRecord(settings)})
    replies = list(
        grid.send_and_receive([Message(content, node, MessageType.TRAIN) for node in nodes])
    )
    total = np.zeros_like(Q)
    for reply in replies:
        app, column, sign = reply.content["report"]["report"]
        total[app, column] += sign
    if len(replies) != len(nodes) or not total.any():
        raise RuntimeError(f"{len(replies)} of {len(nodes)} clients answered.")
    scale = settings["clip"] / math.tanh(settings["epsilon"] / 2)
    return Q - 0.01 * Q.size * scale / len(replies) * total


def main():
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    data = np.load(sys.argv[1])
    n_phones = len(data["app_starts"]) - 1
    settings = dict(zip(("clip", "epsilon", "lam"), map(float, sys.argv[2:]), strict=True))
    settings["fleet"] = os.path.abspath(sys.argv[1])
    seconds = []
    server, client = ServerApp(), ClientApp()
    client.train()(train)

    @server.main()
    def play(grid, context):
        Q = data["app_vectors"]
        while len(nodes := list(grid.get_node_ids())) < n_phones:
            time.sleep(0.1)
        for _ in range(ROUNDS):
            start = time.perf_counter()
            Q = one_round(grid, nodes, Q, settings)
            seconds.append(time.perf_counter() - start)

    run_simulation(
        server, client, n_phones,
        backend_config={
            "init_args": {"_node_ip_address": "127.0.0.1"},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )  # fmt: skip
    print(json.dumps({"seconds_per_phone": min(seconds[1:]) / n_phones}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["FLWR_HOME"] = home
        import flower_round  # by name, so that Ray's workers import it once and not per message

        flower_round.main()
