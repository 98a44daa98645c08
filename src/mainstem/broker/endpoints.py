"""Where a node listens, and where it tells clients to find it: what `listeners` and the settings about them mean.

Rules, Kafka's:
- The name of a listener is written as one likes and compared in capitals.
- A listener has a security protocol: what `listener.security.protocol.map` gives it, and without a map its name, or
  PLAINTEXT where controllers use it.
- A listener without a host is bound on every address, and told by the name that this machine has.
- What is advertised is some of the listeners, under addresses that others can reach.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from mainstem.broker.settings import NOT_BUILT, SETTINGS, ConfigError

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ANYWHERE: Final = ("0.0.0.0", "::")
"""Addresses to listen on that nobody can connect to."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener is bound, or where clients are told to find it."""

    listener: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """As clients are given it."""
        return f"{_bracketed(self.host)}:{self.port}"

    def __str__(self) -> str:
        return f"{self.listener}://{self.address}"


@dataclass(frozen=True, slots=True)
class Listeners:
    bound: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    controllers: tuple[str, ...]
    """The names of those that controllers use."""


@cache
def own_host_name() -> str:
    """What this machine is called where its address is looked up; the address where that has no name."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        raise ConfigError(
            f"listeners has one without a host, and {name}, the name of this machine, is the name of no address; "
            "give the address by which clients reach this node in advertised.listeners"
        ) from None
    try:
        return socket.gethostbyaddr(address)[0]
    except OSError:
        return address


def read_listeners(given: Mapping[str, str], own_name: Callable[[], str] = own_host_name) -> Listeners:
    """ConfigError where the settings about listeners do not fit together."""
    controllers = tuple(name.upper() for name in split(given.get("controller.listener.names")))
    bound = tuple(_endpoints("listeners", split(given.get("listeners", SETTINGS["listeners"].default))))
    _check_bound(bound, controllers)
    protocols = _protocols(given, controllers)
    for endpoint in bound:
        protocol = protocols.get(endpoint.listener)
        if protocol is None:
            raise ConfigError(
                f"listeners has {endpoint.listener}, which listener.security.protocol.map gives no protocol; "
                f"add {endpoint.listener}:PLAINTEXT to it"
            )
        if protocol != "PLAINTEXT":
            raise ConfigError(
                f"listeners has {endpoint.listener} with the protocol {protocol}, which {NOT_BUILT}; "
                "PLAINTEXT is served"
            )
    advertised = tuple(
        endpoint if endpoint.host else Endpoint(endpoint.listener, own_name(), endpoint.port)
        for endpoint in _advertised(given, bound, controllers)
    )
    _check_between_brokers(given, protocols, [each.listener for each in advertised if each.listener not in controllers])
    return Listeners(bound, advertised, controllers)


def split(value: str | None) -> list[str]:
    return [part.strip() for part in (value or "").split(",") if part.strip()]


def read_address(text: str) -> tuple[str, int] | None:
    """A host and a port; None where it is not that."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        return None
    return host.strip("[]"), int(port)


def _endpoints(key: str, parts: Iterable[str]) -> Iterable[Endpoint]:
    seen: set[str] = set()
    for part in parts:
        written, _, rest = part.partition("://")
        name, address = written.upper(), read_address(rest)
        if not name or address is None:
            raise ConfigError(f"{key} has '{part}'; a listener is written NAME://host:port, with a port up to 65535")
        if name in seen:
            raise ConfigError(f"{key} has the listener {name} twice; each name may be used once")
        seen.add(name)
        yield Endpoint(name, *address)


def _check_bound(bound: tuple[Endpoint, ...], controllers: tuple[str, ...]) -> None:
    if not controllers:
        raise ConfigError("controller.listener.names is missing; name the listener that controllers use")
    names = [endpoint.listener for endpoint in bound]
    for name in controllers:
        if name not in names:
            raise ConfigError(f"controller.listener.names has {name}, which is not one of the listeners")
    if all(name in controllers for name in names):
        raise ConfigError("listeners has none for clients; add one such as PLAINTEXT://127.0.0.1:9092")
    seen: dict[int, str] = {}
    for endpoint in bound:
        if endpoint.port and endpoint.port in seen:
            raise ConfigError(
                f"listeners gives port {endpoint.port} to both {seen[endpoint.port]} and {endpoint.listener}"
            )
        seen[endpoint.port] = endpoint.listener


def _protocols(given: Mapping[str, str], controllers: tuple[str, ...]) -> dict[str, str]:
    key = "listener.security.protocol.map"
    if key not in given:
        return {name: name for name in _PROTOCOLS} | dict.fromkeys(controllers, "PLAINTEXT")
    protocols = {}
    for pair in split(given[key]):
        name, _, protocol = (part.strip().upper() for part in pair.rpartition(":"))
        if not name or protocol not in _PROTOCOLS:
            raise ConfigError(
                f"{key} has '{pair}'; an entry is written NAME:PROTOCOL, with one of {', '.join(_PROTOCOLS)}"
            )
        protocols[name] = protocol
    return protocols


def _advertised(
    given: Mapping[str, str], bound: tuple[Endpoint, ...], controllers: tuple[str, ...]
) -> tuple[Endpoint, ...]:
    key = "advertised.listeners"
    advertised = bound
    if key in given:
        advertised = tuple(_endpoints(key, split(given[key])))
        names = [endpoint.listener for endpoint in bound]
        for endpoint in advertised:
            if endpoint.listener not in names:
                raise ConfigError(
                    f"{key} has {endpoint}, and {endpoint.listener} is not one of the listeners: {', '.join(names)}"
                )
        if all(endpoint.listener in controllers for endpoint in advertised):
            raise ConfigError(f"{key} is '{given[key]}'; it must have a listener for clients")
    for endpoint in advertised:
        if endpoint.host in ANYWHERE:
            raise ConfigError(
                f"{key} would tell clients to connect to {endpoint.host}; give the address by which they reach this "
                f"node, such as {key}={endpoint.listener}://host:{endpoint.port}"
            )
    return advertised


def _check_between_brokers(given: Mapping[str, str], protocols: Mapping[str, str], advertised: list[str]) -> None:
    key = "inter.broker.listener.name"
    if key not in given:
        return
    if "security.inter.broker.protocol" in given:
        raise ConfigError(f"{key} and security.inter.broker.protocol are both set; one of them is enough")
    name = given[key].strip().upper()
    if name not in protocols or name not in advertised:
        raise ConfigError(f"{key} is '{given[key]}'; it must be a listener for clients: {', '.join(advertised)}")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
