"""What a client can be told: Kafka's options, by Kafka's names in Python's spelling, with the defaults of Kafka 4.3.

`linger_ms` and "linger.ms" mean the same, and "5" is taken for 5 and "true" for True where that is the type, so that
the settings of another client can be handed over as they are. An option that there is not is an error that names the
nearest one; so is a value out of range. Where a default is not Kafka's, it says why.

The classes are frozen: what a client was told does not change under it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, Self

from mainstem.client.errors import InvalidOptionError

INT32_MAX: Final = 0x7FFFFFFF
INT64_MAX: Final = 0x7FFFFFFFFFFFFFFF
DEFAULT_PORT: Final = 9092

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes], Any]

_PLAIN_TEXT_ONLY: Final = "this client connects in plain text only: TLS and SASL are not there yet"
_DURATION: Final = re.compile(r"by_duration:P(?=.)(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?")
_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_JAVA_ASSIGNORS: Final = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def _option(
    default: Any, *, at_least: int | None = None, at_most: int | None = None, choices: tuple[str, ...] = ()
) -> Any:
    return field(default=default, metadata={"at_least": at_least, "at_most": at_most, "choices": choices})


def _ms(default: int, at_least: int = 0) -> Any:
    return _option(default, at_least=at_least)


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """What every client has."""

    bootstrap_servers: str | tuple[str, ...] = _option(("127.0.0.1:9092",))
    client_id: str = _option("mainstem")
    client_rack: str = _option("")
    metadata_max_age_ms: int = _ms(300_000)
    metadata_recovery_strategy: str = _option("rebootstrap", choices=("none", "rebootstrap"))
    metadata_recovery_rebootstrap_trigger_ms: int = _ms(300_000)
    reconnect_backoff_ms: int = _ms(50)
    reconnect_backoff_max_ms: int = _ms(1000)
    retry_backoff_ms: int = _ms(100)
    retry_backoff_max_ms: int = _ms(1000)
    request_timeout_ms: int = _ms(30_000, at_least=1)
    connections_max_idle_ms: int = _option(540_000, at_least=-1)
    socket_connection_setup_timeout_ms: int = _ms(10_000, at_least=1)
    socket_connection_setup_timeout_max_ms: int = _ms(30_000, at_least=1)
    # Kafka has 128 KB and 64 KB; the system's own choice grows with the connection and is faster.
    send_buffer_bytes: int = _option(-1, at_least=-1)
    receive_buffer_bytes: int = _option(-1, at_least=-1)
    security_protocol: str = _option("PLAINTEXT")

    def __post_init__(self) -> None:
        _put(self, "bootstrap_servers", _servers(self.bootstrap_servers))
        for each in fields(self):
            _put(self, each.name, _checked(each, getattr(self, each.name)))
        if self.security_protocol != "PLAINTEXT":
            raise InvalidOptionError(f"security_protocol is {self.security_protocol!r}; {_PLAIN_TEXT_ONLY}")

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """`bootstrap_servers` as hosts and ports."""
        return [_address(server) for server in self.bootstrap_servers]

    @classmethod
    def from_kwargs(cls, given: Mapping[str, Any]) -> Self:
        """The options that `given` names, in Python's spelling or Kafka's; InvalidOptionError for what there is not."""
        known = {each.name for each in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in given.items():
            spelled = name.replace(".", "_")
            if spelled not in known:
                if spelled.startswith(("sasl_", "ssl_")):
                    raise InvalidOptionError(f"{name} is given; {_PLAIN_TEXT_ONLY}")
                raise InvalidOptionError(_unknown(cls.__name__.removesuffix("Options").lower(), name, spelled, known))
            if spelled in values:
                raise InvalidOptionError(f"{spelled} is given twice, the second time as {name!r}")
            values[spelled] = value
        cls._settle(values)
        return cls(**values)

    @classmethod
    def _settle(cls, values: dict[str, Any]) -> None:
        """Chooses what was left open, where that depends on what was given."""


@dataclass(frozen=True, kw_only=True)
class ProducerOptions(CommonOptions):
    acks: int | str = _option("all")
    batch_size: int = _option(16_384, at_least=0)
    linger_ms: float = _ms(5)
    buffer_memory: int = _option(33_554_432, at_least=0)
    compression_type: str = _option("none", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    compression_gzip_level: int = _option(-1, at_least=-1, at_most=9)
    compression_lz4_level: int = _option(9, at_least=1, at_most=17)
    compression_zstd_level: int = _option(3, at_least=-131_072, at_most=22)
    delivery_timeout_ms: int = _ms(120_000)
    enable_idempotence: bool = _option(True)
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    max_block_ms: int = _ms(60_000)
    max_in_flight_requests_per_connection: int = _option(5, at_least=1)
    max_request_size: int = _option(1_048_576, at_least=0)
    metadata_max_idle_ms: int = _ms(300_000, at_least=5000)
    partitioner: Callable[[str, bytes | None, bytes | None, int], int] | None = None
    partitioner_adaptive_partitioning_enable: bool = _option(True)
    partitioner_availability_timeout_ms: int = _ms(0)
    partitioner_ignore_keys: bool = _option(False)
    retries: int = _option(INT32_MAX, at_least=0, at_most=INT32_MAX)
    transactional_id: str | None = _option(None)
    transaction_timeout_ms: int = _ms(60_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}.get(str(self.acks))
        if acks is None:
            raise InvalidOptionError(f"acks is {self.acks!r}; it is 0, 1 or 'all'")
        _put(self, "acks", acks)
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise InvalidOptionError(
                f"delivery_timeout_ms is {self.delivery_timeout_ms}; it must be at least linger_ms + "
                f"request_timeout_ms, which is {self.linger_ms + self.request_timeout_ms}"
            )
        if self.enable_idempotence:
            wrong = self._against_idempotence()
            if wrong:
                raise InvalidOptionError(f"{wrong} while enable_idempotence is True")
        if self.transactional_id is not None and not self.enable_idempotence:
            raise InvalidOptionError("transactional_id is given; transactions need enable_idempotence")

    @property
    def compression_level(self) -> int | None:
        """The level of the codec that is chosen; None for one that has none."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    def _against_idempotence(self) -> str:
        if self.acks != -1:
            return f"acks is {self.acks}; it must be 'all'"
        if self.retries == 0:
            return "retries is 0; it must be at least 1"
        if self.max_in_flight_requests_per_connection > 5:
            given = self.max_in_flight_requests_per_connection
            return f"max_in_flight_requests_per_connection is {given}; it must be at most 5"
        return ""

    @classmethod
    def _settle(cls, values: dict[str, Any]) -> None:
        if "delivery_timeout_ms" not in values:
            values["delivery_timeout_ms"] = _delivery_ms(values)
        # As in Kafka: idempotence is the default, and gives way to options that exclude it unless it was asked for.
        if "enable_idempotence" in values or values.get("transactional_id") is not None:
            return
        if (
            str(values.get("acks", "all")) not in ("all", "-1")
            or str(values.get("retries", 1)) == "0"
            or int(values.get("max_in_flight_requests_per_connection", 5)) > 5
        ):
            values["enable_idempotence"] = False


def _delivery_ms(values: Mapping[str, Any]) -> int:
    """As in Kafka: the default gives way to a longer wait for an answer, where that was asked for."""
    default = ProducerOptions.delivery_timeout_ms
    try:
        lingers_ms = float(values.get("linger_ms", ProducerOptions.linger_ms))
        waits_ms = float(values.get("request_timeout_ms", ProducerOptions.request_timeout_ms))
        return max(default, math.ceil(lingers_ms + waits_ms))
    except (TypeError, ValueError, OverflowError):
        return default  # what is wrong with them is told where they are checked


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions(CommonOptions):
    group_id: str | None = _option(None)
    group_instance_id: str | None = _option(None)
    allow_auto_create_topics: bool = _option(True)
    auto_commit_interval_ms: int = _ms(5000)
    auto_offset_reset: str = _option("latest")
    check_crcs: bool = _option(True)
    default_api_timeout_ms: int = _ms(60_000)
    enable_auto_commit: bool = _option(True)
    exclude_internal_topics: bool = _option(True)
    fetch_max_bytes: int = _option(52_428_800, at_least=0)
    fetch_max_wait_ms: int = _ms(500)
    fetch_min_bytes: int = _option(1, at_least=0)
    group_protocol: str = _option("classic", choices=("classic", "consumer"))
    heartbeat_interval_ms: int = _ms(3000)
    isolation_level: str = _option("read_uncommitted", choices=("read_uncommitted", "read_committed"))
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    max_partition_fetch_bytes: int = _option(1_048_576, at_least=0)
    max_poll_interval_ms: int = _ms(300_000, at_least=1)
    max_poll_records: int = _option(500, at_least=1)
    partition_assignment_strategy: str | tuple[str, ...] = _option(("range", "cooperative-sticky"))
    session_timeout_ms: int = _ms(45_000)

    def __post_init__(self) -> None:
        super().__post_init__()
        _put(self, "partition_assignment_strategy", _strategies(self.partition_assignment_strategy))
        reset = self.auto_offset_reset
        if reset not in ("earliest", "latest", "none") and not _DURATION.fullmatch(reset):
            raise InvalidOptionError(
                f"auto_offset_reset is {reset!r}; it is 'earliest', 'latest', 'none' or 'by_duration:' with an "
                "ISO 8601 duration, as in 'by_duration:PT5M'"
            )
        if self.group_id == "":
            raise InvalidOptionError("group_id is empty; leave it out for a consumer without a group")
        if self.group_instance_id is not None and self.group_id is None:
            raise InvalidOptionError("group_instance_id is given without a group_id")
        if self.group_id is None and self.enable_auto_commit:
            _put(self, "enable_auto_commit", False)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise InvalidOptionError(
                f"heartbeat_interval_ms is {self.heartbeat_interval_ms}; it must be less than session_timeout_ms, "
                f"which is {self.session_timeout_ms}"
            )


@dataclass(frozen=True, kw_only=True)
class AdminOptions(CommonOptions):
    default_api_timeout_ms: int = _ms(60_000)
    retries: int = _option(INT32_MAX, at_least=0, at_most=INT32_MAX)


def _put(options: CommonOptions, name: str, value: Any) -> None:
    object.__setattr__(options, name, value)


def _servers(given: object) -> tuple[str, ...]:
    servers = given.split(",") if isinstance(given, str) else given
    if not isinstance(servers, list | tuple) or not servers:
        raise InvalidOptionError(f"bootstrap_servers is {given!r}; it is 'host:port', several with commas, or a list")
    stripped = tuple(str(server).strip() for server in servers)
    for server in stripped:
        _address(server)
    return stripped


def _strategies(given: str | tuple[str, ...]) -> tuple[str, ...]:
    """Assignors by name, or by the class that Java has for each."""
    names = [str(each).strip() for each in (given.split(",") if isinstance(given, str) else given)]
    if not any(names):
        raise InvalidOptionError("partition_assignment_strategy is empty; it is one or several names of assignors")
    return tuple(_JAVA_ASSIGNORS.get(each.removeprefix(_JAVA_PACKAGE), each) for each in names)


def _address(server: str) -> tuple[str, int]:
    """`host:port`, `host`, `[::1]:9092`, or Kafka's `PLAINTEXT://host:port`."""
    host, colon, port = server.rpartition("://")[2].rpartition(":")
    if not colon or port.endswith("]"):
        host, port = server.rpartition("://")[2], str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidOptionError(f"bootstrap_servers has {server!r}; each is 'host:port'")
    return host.strip("[]"), int(port)


def _unknown(kind: str, name: str, spelled: str, known: set[str]) -> str:
    nearest = difflib.get_close_matches(spelled, known, 1, 0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"a {kind} has no option {name!r}{hint}"


def _checked(option: Field[Any], value: Any) -> Any:
    """The value as the option's type; InvalidOptionError where it cannot be."""
    name, kind = option.name, str(option.type)
    if kind == "bool":
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise InvalidOptionError(f"{name} is {value!r}; it is True or False")
    elif kind in ("int", "float"):
        return _checked_number(option, value)
    elif kind == "str" and not isinstance(value, str):
        raise InvalidOptionError(f"{name} is {value!r}; it is a str")
    elif kind == "str | None" and not (value is None or isinstance(value, str)):
        raise InvalidOptionError(f"{name} is {value!r}; it is a str or None")
    elif ("Callable" in kind or "erializer" in kind) and not (value is None or callable(value)):
        raise InvalidOptionError(f"{name} is {value!r}; it is something to call, or None")
    choices = option.metadata.get("choices")
    if choices and value not in choices:
        raise InvalidOptionError(f"{name} is {value!r}; it is one of {', '.join(choices)}")
    return value


def _checked_number(option: Field[Any], value: Any) -> int | float:
    name = option.name
    number = value
    if isinstance(value, str):
        try:
            number = float(value) if str(option.type) == "float" else int(value)
        except ValueError:
            raise InvalidOptionError(f"{name} is {value!r}; it is a number") from None
    wanted = int if str(option.type) == "int" else int | float
    if isinstance(number, bool) or not isinstance(number, wanted):
        raise InvalidOptionError(f"{name} is {value!r}; it is a number" + (" without a fraction" * (wanted is int)))
    low, high = option.metadata["at_least"], option.metadata["at_most"]
    if low is not None and number < low:
        raise InvalidOptionError(f"{name} is {value!r}; it is at least {low}")
    if high is not None and number > high:
        raise InvalidOptionError(f"{name} is {value!r}; it is at most {high}")
    return number
