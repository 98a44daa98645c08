"""A node's settings, by Kafka's names with Kafka's defaults.

Rules:
- An invalid value is one sentence that names the key, the value and what is allowed (`ConfigError`).
- A key that Kafka 4.3 knows and that has no effect here is one warning; an unknown one is a warning that names the
  nearest known.
- A security setting that is not built yet stops the start: ignoring it would let someone in.
"""

from collections.abc import Iterable, Mapping

from mainstem.broker.endpoints import Endpoint, read_address, read_listeners
from mainstem.broker.setting_bounds import AT_LEAST
from mainstem.broker.settings import INTERNAL_SETTINGS, NOT_BUILT, SETTINGS, ConfigError, Setting
from mainstem.core.java_numbers import is_whole_number, parse_double

__all__ = ["EFFECTIVE", "FULFILLED", "BrokerConfig", "ConfigError", "Endpoint"]

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
        "connections.max.idle.ms",
        "controller.listener.names",
        "cordoned.log.dirs",
        "default.replication.factor",
        "delete.topic.enable",
        "fetch.max.bytes",
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "internal.metadata.delete.delay.millis",
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
        "num.replica.alter.log.dirs.threads",
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
        "socket.receive.buffer.bytes",
        "socket.request.max.bytes",
        "socket.send.buffer.bytes",
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

# What one node fulfils, whatever they may say: there is nobody else to vote, to talk to, or to hand leadership to.
FULFILLED = frozenset(
    {
        "controlled.shutdown.enable",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
    }
)

_MEANINGLESS_SECURITY = frozenset({"security.inter.broker.protocol", "sasl.mechanism.inter.broker.protocol"})


class BrokerConfig:
    """Settings given by the user over Kafka's defaults, checked once when made."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key: value.strip() for key, value in given.items()}
        self.warnings = tuple(_warnings(self._given))
        _refuse_unbuilt_security(self._given)
        for key, value in self._given.items():
            if key in SETTINGS or key in INTERNAL_SETTINGS:
                _check_value(_known(key), value)
        self.roles = tuple(self.get_list("process.roles"))
        self.node_id = self._node_id()
        self._check_roles()
        found = read_listeners(self._given)
        self.listeners, self.advertised, self.controller_listeners = found.bound, found.advertised, found.controllers
        self.log_dirs = tuple(self.get_list("log.dirs" if self.is_given("log.dirs") else "log.dir"))
        if not self.log_dirs:
            raise ConfigError("log.dirs is empty; name at least one directory to keep data in")
        self.metadata_dir = self.get("metadata.log.dir") or self.log_dirs[0]
        self._check_directories()
        self._check_quorum()
        self._check_times()

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
        return parse_double(self.get(key) or "0")

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

    def _check_roles(self) -> None:
        if sorted(self.roles) != ["broker", "controller"]:
            raise ConfigError(
                f"process.roles is '{','.join(self.roles)}'; 'broker,controller' is the only one served so far"
            )

    def _check_directories(self) -> None:
        cordoned = self.get_list("cordoned.log.dirs")
        missing = [path for path in cordoned if path not in self.log_dirs]
        if cordoned != ["*"] and missing:
            raise ConfigError(
                f"cordoned.log.dirs has {', '.join(missing)}, which log.dirs has not: {', '.join(self.log_dirs)}"
            )

    def _check_quorum(self) -> None:
        """A node is its own quorum so far: what is said of the quorum must not say otherwise."""
        key = "controller.quorum.voters"
        for entry in self.get_list(key):
            voter, _, place = entry.partition("@")
            address = read_address(place)
            if not voter.isascii() or not voter.isdigit() or address is None or not address[0]:
                raise ConfigError(f"{key} has '{entry}'; a voter is written ID@host:port")
            if int(voter) != self.node_id:
                raise ConfigError(
                    f"{key} has '{entry}'; this is node {self.node_id}, and several controllers are not served yet"
                )
        key = "controller.quorum.bootstrap.servers"
        own = {each.port for each in (*self.listeners, *self.advertised) if each.listener in self.controller_listeners}
        named = set()
        for entry in self.get_list(key):
            address = read_address(entry)
            if address is None or not address[0]:
                raise ConfigError(f"{key} has '{entry}'; a server is written host:port")
            named.add(address)
        # A port that is chosen at the start cannot have been written down.
        if len(named) > 1 or (0 not in own and any(port not in own for _, port in named)):
            raise ConfigError(
                f"{key} is '{self.get(key)}'; this node's own controller listener is the only one that may be named, "
                "because several controllers are not served yet"
            )

    def _check_times(self) -> None:
        for key in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
            if self.is_given(key):
                if self.get_int(key) == 0:
                    raise ConfigError(f"{key} is 0; it must be at least 1, or -1 for ever")
                break  # what comes after it does not count
        idle_ms, delay_ms = (
            self.get_int(key) for key in ("connections.max.idle.ms", "connection.failed.authentication.delay.ms")
        )
        if 0 <= idle_ms <= delay_ms:
            raise ConfigError(
                f"connections.max.idle.ms is {idle_ms}; it must be more than {delay_ms}, which is "
                "connection.failed.authentication.delay.ms, or negative for ever"
            )


def _known(key: str) -> Setting:
    return SETTINGS.get(key) or INTERNAL_SETTINGS[key]


def _warnings(given: Mapping[str, str]) -> Iterable[str]:
    for key in sorted(given):
        if key in EFFECTIVE or key in FULFILLED or key in _MEANINGLESS_SECURITY:
            continue
        if key in SETTINGS:
            yield f"{key} is a setting of Kafka's that has no effect here"
        elif key.startswith("listener.name."):
            yield f"{key} is a setting of one listener, and such have no effect here"
        else:
            import difflib  # for this alone: a start does without

            near = difflib.get_close_matches(key, SETTINGS, n=1)
            yield f"{key} is not a setting" + (f"; did you mean {near[0]}?" if near else "")


def _refuse_unbuilt_security(given: Mapping[str, str]) -> None:
    if given.get("authorizer.class.name"):
        raise ConfigError(f"authorizer.class.name is {given['authorizer.class.name']}; authorization {NOT_BUILT}")
    for key in ("alter.config.policy.class.name", "create.topic.policy.class.name"):
        if given.get(key):
            raise ConfigError(f"{key} is {given[key]}; a policy in Java cannot be loaded, and would not be enforced")
    for key in sorted(given):
        if key.startswith("listener.name.") and (".sasl." in key or ".ssl." in key):
            raise ConfigError(f"{key} is a security setting that {NOT_BUILT}")


_RANGES = {
    "int": (-(2**31), 2**31 - 1),
    "short": (-(2**15), 2**15 - 1),
    "long": (-(2**63), 2**63 - 1),
}


def _check_value(setting: Setting, value: str) -> None:
    match setting.kind:
        case "int" | "short" | "long":
            low, high = _RANGES[setting.kind]
            if not is_whole_number(value) or not low <= int(value) <= high:
                raise ConfigError(f"{setting.name} is '{value}'; it must be a whole number from {low} to {high}")
            least = AT_LEAST.get(setting.name, low)
            if int(value) < least:
                raise ConfigError(f"{setting.name} is {value}; it must be at least {least}")
        case "double":
            try:
                parse_double(value)
            except ValueError:
                raise ConfigError(f"{setting.name} is '{value}'; it must be a number") from None
        case "list":
            if value and not all(part.strip() for part in value.split(",")):
                raise ConfigError(f"{setting.name} is '{value}'; it has an entry that is empty")
        case "bool":
            if value.lower() not in ("true", "false"):
                raise ConfigError(f"{setting.name} is '{value}'; it must be true or false")
