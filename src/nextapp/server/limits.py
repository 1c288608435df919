"""What one client may ask of a gateway. All of it is held in memory and written nowhere."""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on clients that are slow, many, loud or hostile. Times are seconds.

    Of ``connections`` an address may hold ``address_connections``, and all IPv6 addresses of a site
    (`site_of`) together ``site_connections``.
    A device may send ``token_burst`` requests at once and one every ``token_seconds`` in the long
    run; an address may send as many wrong enrolment codes by ``address_burst`` and
    ``address_seconds``, and fetch ``download_bytes`` of broadcasts at once and as many a second as
    ``download_rate`` in the long run. A token is valid for ``token_valid_seconds``, and devices are
    asked to renew it in the last quarter of that. All phones together may enrol ``enrol_burst`` at
    once, then one every ``enrol_seconds``.
    """

    connections: int = 4096
    address_connections: int = 256
    site_connections: int = 1024
    handshake_seconds: float = 10.0
    head_bytes: int = 32 << 10
    request_seconds: float = 20.0
    response_seconds: float = 60.0
    keep_alive_seconds: int = 30
    waiting_reports: int = 20_000
    token_burst: float = 30.0
    token_seconds: float = 2.0
    address_burst: float = 20.0
    address_seconds: float = 10.0
    download_bytes: float = 64e6
    download_rate: float = 4e6
    enrol_burst: float = 500.0
    enrol_seconds: float = 0.02
    token_valid_seconds: float = math.inf

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"the limit {name} must be a number > 0, got {value!r}.")

    @property
    def renewal_seconds(self) -> float:
        """How long before it expires a token shall be renewed; 0 for one that never does."""
        return self.token_valid_seconds / 4 if math.isfinite(self.token_valid_seconds) else 0.0


class Allowance:
    """A bucket for each key: `burst` requests at once, refilled by one every `seconds`.

    The keys seen longest ago are forgotten where there are more than `most_keys`.
    """

    def __init__(self, burst: float, seconds: float, most_keys: int = 100_000) -> None:
        self.burst, self.seconds, self.most_keys = burst, seconds, most_keys
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, key: Hashable, now: float, n: float = 1.0) -> float:
        """Take n from the key's bucket: 0.0 if it was there, else the seconds until it is."""
        left, before = self._left.pop(key, (self.burst, now))
        left = min(self.burst, left + max(0.0, now - before) / self.seconds)
        wait = 0.0 if left >= n else (n - left) * self.seconds
        self._left[key] = (left if wait else left - n, now)
        if len(self._left) > self.most_keys:
            self._left.popitem(last=False)
        return wait


def network_of(host: str) -> str:
    """What counts as one address: for IPv6 the /64 that one subscriber has.

    >>> network_of("192.0.2.7"), network_of("2001:db8:0:1:a::7"), network_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8:0:1::', '192.0.2.7')
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_address(int(address) >> 64 << 64))


def site_of(network: str) -> str:
    """The /48 of an IPv6 network, which is given out for free: 65,536 of what `network_of` counts.

    >>> site_of("2001:db8:0:1::"), site_of("192.0.2.7")
    ('2001:db8::/48', '')
    """
    try:
        address = ipaddress.IPv6Address(network)
    except ValueError:
        return ""
    return f"{ipaddress.IPv6Address(int(address) >> 80 << 80)}/48"
