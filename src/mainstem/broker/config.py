"""A node's settings, by Kafka's names with Kafka's defaults.

Rules:
- An invalid value is one sentence that names the key, the value and what is allowed (`ConfigError`).
- A key that Kafka 4.3 knows and that has no effect here is one warning; an unknown one is a warning that names the
  nearest known.
- A security setting that is not built yet stops the start: ignoring it would let someone in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mainstem.broker.settings import INTERNAL_SETTINGS, SETTINGS, Setting


class ConfigError(ValueError):
    """A setting that cannot be used; the message is for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a listener is bound, or where clients are told to find it."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.listener}://{_bracketed(self.host)}:{self.port}"


# Settings that change what the node does. The rest of Kafka's are accepted with a warning.
EFFECTIVE = frozenset(
    {
        "add.partitions.to.txn.retry.backoff.max.ms",
        "add.partitions.to.txn.retry.backoff.ms",
        "advertised.listeners",
        "authorizer.class.name",
        "auto.create.topics.enable",
        "broker.heartbeat.interval.ms",
        "broker.id",
        "broker.rack",
        "broker.session.timeout.ms",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "controller.listener.names",
        "cordoned.log.dirs",
        "default.replication.factor",
        "delete.topic.enable",
        "fetch.max.bytes",
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "listener.security.protocol.map",
        "listeners",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.delete.retention.ms",
        "log.cleaner.enable",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleaner.min.cleanable.ratio",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleanup.policy",
        "log.dir",
        "log.dirs",
        "log.flush.interval.messages",
        "log.flush.interval.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.scheduler.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "log.index.interval.bytes",
        "log.index.size.max.bytes",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.type",
        "log.preallocate",
        "log.retention.bytes",
        "log.retention.check.interval.ms",
        "log.retention.hours",
        "log.retention.minutes",
        "log.retention.ms",
        "log.roll.hours",
        "log.roll.jitter.hours",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "log.segment.bytes",
        "log.segment.delete.delay.ms",
        "max.connections",
        "max.incremental.fetch.session.cache.slots",
        "max.request.partition.size.limit",
        "message.max.bytes",
        "metadata.log.dir",
        "metadata.log.max.record.bytes.between.snapshots",
        "metadata.log.max.snapshot.interval.ms",
        "metadata.log.segment.bytes",
        "metadata.log.segment.ms",
        "metadata.max.idle.interval.ms",
        "metadata.max.retention.bytes",
        "metadata.max.retention.ms",
        "min.insync.replicas",
        "node.id",
        "num.partitions",
        "offset.metadata.max.bytes",
        "offsets.commit.timeout.ms",
        "offsets.retention.check.interval.ms",
        "offsets.retention.minutes",
        "offsets.topic.compression.codec",
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        "process.roles",
        "producer.id.expiration.check.interval.ms",
        "producer.id.expiration.ms",
        "replica.high.watermark.checkpoint.interval.ms",
        "request.timeout.ms",
        "socket.request.max.bytes",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "transaction.max.timeout.ms",
        "transaction.partition.verification.enable",
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        "transaction.state.log.min.isr",
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.segment.bytes",
        "transaction.two.phase.commit.enable",
        "transactional.id.expiration.ms",
        "unclean.leader.election.enable",
    }
)

# What one node fulfils whatever they say: there is nobody else to vote, to talk to, or to hand leadership to.
FULFILLED = frozenset(
    {
        "controlled.shutdown.enable",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
    }
)

_NOT_BUILT = "is not built yet, and starting without it would leave the node open"
_MEANINGLESS_SECURITY = frozenset({"security.inter.broker.protocol", "sasl.mechanism.inter.broker.protocol"})


class BrokerConfig:
    """Settings given by the user over Kafka's defaults, checked once when made."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key: value.strip() for key, value in given.items()}
        self.warnings = tuple(_warnings(self._given))
        _refuse_unbuilt_security(self._given)
        for key, value in self._given.items():
            if key in SETTINGS or key in INTERNAL_SETTINGS:
                _check_type(_known(key), value)
        self.roles = tuple(self.get_list("process.roles"))
        self.node_id = self._node_id()
        self.controller_listeners = tuple(self.get_list("controller.listener.names"))
        self.listeners = tuple(_endpoints("listeners", self.get_list("listeners")))
        self.advertised = tuple(self._advertised())
        self._check_roles()
        self._check_listeners()
        self.log_dirs = tuple(self.get_list("log.dirs" if self.is_given("log.dirs") else "log.dir"))
        if not self.log_dirs:
            raise ConfigError("log.dirs is empty; name at least one directory to keep data in")
        self.metadata_dir = self.get("metadata.log.dir") or self.log_dirs[0]

    # Typed reading

    def get(self, key: str) -> str | None:
        value = self._given.get(key)
        return _known(key).default if value is None else value

    def is_given(self, key: str) -> bool:
        return key in self._given

    @property
    def given(self) -> Mapping[str, str]:
        return self._given

    def get_int(self, key: str, at_least: int | None = None, at_most: int | None = None) -> int:
        value = self.get(key)
        if value is None:
            raise ConfigError(f"{key} is missing; give it a whole number")
        number = int(value)
        if (at_least is not None and number < at_least) or (at_most is not None and number > at_most):
            bounds = f"at least {at_least}" if at_most is None else f"between {at_least} and {at_most}"
            raise ConfigError(f"{key} is {number}; it must be {bounds}")
        return number

    def get_float(self, key: str) -> float:
        return float(self.get(key) or 0)

    def get_bool(self, key: str) -> bool:
        return (self.get(key) or "").lower() == "true"

    def get_list(self, key: str) -> list[str]:
        return [part.strip() for part in (self.get(key) or "").split(",") if part.strip()]

    # Checks across settings

    @property
    def client_listeners(self) -> tuple[Endpoint, ...]:
        return tuple(e for e in self.listeners if e.listener not in self.controller_listeners)

    @property
    def controller_endpoint(self) -> Endpoint | None:
        return next((e for e in self.listeners if e.listener in self.controller_listeners), None)

    def _node_id(self) -> int:
        given = self._given.get("node.id", self._given.get("broker.id"))
        if given is None:
            raise ConfigError("node.id is missing; give this node a number of its own, 0 or above")
        if "broker.id" in self._given and "node.id" in self._given and given != self._given["broker.id"]:
            raise ConfigError(f"node.id is {given} and broker.id is {self._given['broker.id']}; they must be the same")
        if int(given) < 0:
            raise ConfigError(f"node.id is {given}; it must be 0 or above")
        return int(given)

    def _advertised(self) -> Iterable[Endpoint]:
        if not self.is_given("advertised.listeners"):
            return self.listeners
        return _endpoints("advertised.listeners", self.get_list("advertised.listeners"))

    def _check_roles(self) -> None:
        if sorted(self.roles) != ["broker", "controller"]:
            raise ConfigError(
                f"process.roles is '{','.join(self.roles)}'; 'broker,controller' is the only one served so far"
            )

    def _check_listeners(self) -> None:
        if not self.controller_listeners:
            raise ConfigError("controller.listener.names is missing; name the listener that controllers use")
        for name in self.controller_listeners:
            if not any(e.listener == name for e in self.listeners):
                raise ConfigError(f"controller.listener.names has {name}, which is not one of the listeners")
        if not self.client_listeners:
            raise ConfigError("listeners has none for clients; add one such as PLAINTEXT://127.0.0.1:9092")
        seen: dict[int, str] = {}
        for endpoint in self.listeners:
            if endpoint.port and endpoint.port in seen:
                raise ConfigError(
                    f"listeners gives port {endpoint.port} to both {seen[endpoint.port]} and {endpoint.listener}"
                )
            seen[endpoint.port] = endpoint.listener
        for endpoint in self.advertised:
            if endpoint.host in ("0.0.0.0", "::"):
                raise ConfigError(
                    f"advertised.listeners would tell clients to connect to {endpoint.host}; "
                    "give the address by which they reach this node"
                )


def _known(key: str) -> Setting:
    return SETTINGS.get(key) or INTERNAL_SETTINGS[key]


def _warnings(given: Mapping[str, str]) -> Iterable[str]:
    for key in sorted(given):
        if key in EFFECTIVE or key in FULFILLED or key in _MEANINGLESS_SECURITY:
            continue
        if key in SETTINGS:
            yield f"{key} is a setting of Kafka's that has no effect here"
        elif not key.startswith("listener.name."):
            import difflib  # for this alone: a start does without

            near = difflib.get_close_matches(key, SETTINGS, n=1)
            yield f"{key} is not a setting" + (f"; did you mean {near[0]}?" if near else "")


def _refuse_unbuilt_security(given: Mapping[str, str]) -> None:
    if given.get("authorizer.class.name"):
        raise ConfigError(f"authorizer.class.name is {given['authorizer.class.name']}; authorization {_NOT_BUILT}")
    for pair in given.get("listener.security.protocol.map", "").split(","):
        name, _, protocol = pair.strip().rpartition(":")
        used = any(part.strip().startswith(f"{name}://") for part in given.get("listeners", "").split(","))
        if used and protocol.upper() != "PLAINTEXT":
            raise ConfigError(
                f"listener.security.protocol.map gives {name} the protocol {protocol}, which {_NOT_BUILT}; "
                "PLAINTEXT is served"
            )
    mapped = given.get("listener.security.protocol.map", "")
    for part in given.get("listeners", "").split(","):
        name = part.strip().partition("://")[0]
        if name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL") and f"{name}:" not in mapped:
            raise ConfigError(f"listeners has {name}, a protocol that {_NOT_BUILT}; PLAINTEXT is served")
    for key in sorted(given):
        if key.startswith("listener.name.") and (".sasl." in key or ".ssl." in key):
            raise ConfigError(f"{key} is a security setting that {_NOT_BUILT}")


_RANGES = {
    "int": (-(2**31), 2**31 - 1),
    "short": (-(2**15), 2**15 - 1),
    "long": (-(2**63), 2**63 - 1),
}


def _check_type(setting: Setting, value: str) -> None:
    match setting.kind:
        case "int" | "short" | "long":
            low, high = _RANGES[setting.kind]
            try:
                valid = low <= int(value) <= high
            except ValueError:
                valid = False
            if not valid:
                raise ConfigError(f"{setting.name} is '{value}'; it must be a whole number from {low} to {high}")
        case "double":
            try:
                float(value)
            except ValueError:
                raise ConfigError(f"{setting.name} is '{value}'; it must be a number") from None
        case "bool":
            if value.lower() not in ("true", "false"):
                raise ConfigError(f"{setting.name} is '{value}'; it must be true or false")


def _endpoints(key: str, parts: Iterable[str]) -> Iterable[Endpoint]:
    seen: set[str] = set()
    for part in parts:
        name, separator, address = part.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not name or not port.isdigit() or int(port) > 65535:
            raise ConfigError(f"{key} has '{part}'; a listener is written NAME://host:port, with a port up to 65535")
        if name in seen:
            raise ConfigError(f"{key} has the listener {name} twice; each name may be used once")
        seen.add(name)
        yield Endpoint(name, host.strip("[]"), int(port))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
