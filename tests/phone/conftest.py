from __future__ import annotations

import shutil
import subprocess
import time

import numpy as np
import pytest

from nextapp.phone import Store
from nextapp.wire import Broadcast, ModelSettings, ReportRequest
from phone.small_server import KEY

NOON = 1_790_000_000.0
APPS = ("browser", "camera", "chat", "mail", "maps", "music")


@pytest.fixture(autouse=True)
def local_time_is_utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "phone.db", lifetime=10.0, per_day=2.0, hours=0.0) as store:
        yield store


@pytest.fixture
def make_broadcast(seed):
    def made(round: int = 0, apps=APPS, d: int = 4, **more) -> Broadcast:
        """Each app has the same vector in every catalogue of this dimension."""
        vectors = np.array(
            [np.random.default_rng([seed, d, *name.encode()]).normal(0, 0.4, d) for name in apps]
        )
        request = more.pop("request", ReportRequest("harmony", 1.0, clip=0.5))
        more = {"keys": (KEY,), **more}
        return Broadcast(round, vectors, ModelSettings(), tuple(apps), request=request, **more)

    return made


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A CA, and a certificate of it for localhost: (CA file, (certificate, key))."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(
        "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj",
        "/CN=test CA", "-addext", "basicConstraints=critical,CA:TRUE", "-addext",
        "keyUsage=critical,keyCertSign",
    )  # fmt: skip
    openssl("req", *key, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    openssl(
        "x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key",
        "-CAcreateserial", "-out", "cert.pem", "-days", "2", "-extfile", "names",
    )  # fmt: skip
    return str(folder / "ca.pem"), (str(folder / "cert.pem"), str(folder / "key.pem"))
