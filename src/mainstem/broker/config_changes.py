"""Changes to a broker's dynamic settings, checked before they go to the controller.

A change may come to one broker (its id) or to all (the empty name). What is checked is what would be in force after
it, so that a broker can always start with what was accepted. Rules, Kafka's:

- Settings that Kafka does not know are taken as they are; those that it knows must be ones that may change.
- Key stores are set per listener, and what belongs to a listener or a disk is set per broker.
- Pools of threads grow to twice and shrink to half of what they are, no more at once.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from mainstem.broker.config import BrokerConfig
from mainstem.broker.config_view import (
    KINDS,
    THROTTLES,
    ConfigView,
    is_updatable,
    kind_of,
    synonyms_of,
)
from mainstem.broker.settings import SETTINGS
from mainstem.core.java_numbers import is_whole_number, parse_double
from mainstem.core.log.config import TOPIC_CONFIGS, ConfigKey, server_defaults
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.java import split_list

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
Operation = tuple[str, int, str | None]
"""A setting's name, what is done to it, and the value."""

_PER_LISTENER: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_PER_BROKER: Final = _PER_LISTENER | {
    "cordoned.log.dirs",
    "listener.security.protocol.map",
    "listeners",
    "principal.builder.class",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.mechanism.inter.broker.protocol",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
}
_THREADS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
# The least that a setting may be, for those that no topic config comes from.
_AT_LEAST: Final = {
    **dict.fromkeys(_THREADS, 1),
    **dict.fromkeys(THROTTLES, 0),
    "group.consumer.assignment.interval.ms": 0,
    "group.coordinator.cached.buffer.max.bytes": 524288,
    "group.share.assignment.interval.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    "log.cleaner.backoff.ms": 0,
    "log.cleaner.io.buffer.size": 0,
    "log.cleaner.threads": 0,
    "max.connection.creation.rate": 0,
    "max.connections": 0,
    "max.connections.per.ip": 0,
    "producer.id.expiration.ms": 1,
    "remote.fetch.max.wait.ms": 1,
    "remote.list.offsets.request.timeout.ms": 1,
    "remote.log.index.file.cache.total.size.bytes": 1,
    "remote.log.manager.copy.max.bytes.per.second": 1,
    "remote.log.manager.fetch.max.bytes.per.second": 1,
    "share.coordinator.cached.buffer.max.bytes": 524288,
}
_TOPIC_KEYS: Final[dict[str, ConfigKey]] = {
    synonym.name: key for key in TOPIC_CONFIGS.values() for synonym in key.synonyms if synonym.factor == 1
}
# Kafka opens and closes listeners while it runs; this broker does not yet, and does not say that it did.
_BOUND_AT_START: Final = ("listeners", "listener.security.protocol.map")
# What Kafka checks only when all settings are looked at together; below it is `server_defaults` that does.
_CHECKED_TOGETHER: Final = ("log.flush.interval.ms", "log.retention.ms", "log.roll.ms", "log.roll.jitter.ms")
# Kafka takes any class that it can load. There is none to load here; this one, its default, is taken and means nothing.
_REPORTERS: Final = (SETTINGS["metric.reporters"].default or "",)
_BYTES_PER_CLEANER: Final = 1 << 20


def apply_operations(current: Mapping[str, str], operations: Iterable[Operation]) -> dict[str, str]:
    """The settings after an incremental change; RemoteError where an operation does not fit its setting."""
    changed = dict(current)
    for name, operation, value in operations:
        match operation:
            case 0:
                assert value is not None, "null values are refused before"
                changed[name] = value
            case 1:
                changed.pop(name, None)
            case 2 | 3:
                parts = _list_to_change(name, changed, "append" if operation == APPEND else "subtract")
                given = split_list(value or "")
                if operation == APPEND:
                    parts += [part for part in given if part not in parts]
                else:
                    parts = [part for part in parts if part not in given]
                changed[name] = ",".join(parts)
            case _:
                raise RemoteError(ErrorCode.INVALID_REQUEST, f"there is no operation {operation}")
    return changed


def _list_to_change(name: str, settings: Mapping[str, str], operation: str) -> list[str]:
    setting = SETTINGS.get(name)
    if setting is None:
        raise RemoteError(ErrorCode.INVALID_CONFIG, f"{name} is no setting that is known, so it is no list")
    if setting.kind != "list":
        raise RemoteError(ErrorCode.INVALID_CONFIG, f"{operation} is for lists, and {name} is none")
    value = settings.get(name, setting.default) or ""
    return [part for part in value.split(",") if part]


def check_broker_change(view: ConfigView, for_all: bool, changed: Mapping[str, str]) -> None:
    """RemoteError where the dynamic settings of this broker, or of all, may not become `changed`."""
    _check_names(for_all, changed)
    for name, value in changed.items():
        _check_value(name, value)
    before = view.settings
    if for_all:
        after = view.settings_with(view.dynamic, changed)
    else:
        after = view.settings_with(changed, view.default)
    for name in _BOUND_AT_START:
        if before.get(name) != after.get(name):
            raise _invalid(f"{name} cannot change while this broker runs; change its file and start it again")
    try:
        BrokerConfig(after)
        logs = server_defaults(after)
    except ValueError as error:
        raise _invalid(str(error)) from None
    _check_local_retention("log.local.retention.ms", logs.local_retention_ms, logs.retention_ms)
    _check_local_retention("log.local.retention.bytes", logs.local_retention_bytes, logs.retention_bytes)
    _check_together(after)
    _check_threads(before, after)


def _invalid(message: str) -> RemoteError:
    return RemoteError(ErrorCode.INVALID_REQUEST, message)


def _check_names(for_all: bool, changed: Mapping[str, str]) -> None:
    fixed = [name for name in changed if name in SETTINGS and not is_updatable(name)]
    if fixed:
        raise _invalid(f"these settings cannot change while a broker runs: {', '.join(fixed)}")
    of_listeners = [name for name in changed if name in _PER_LISTENER]
    if of_listeners:
        raise _invalid(f"these settings are set per listener, as listener.name.NAME.SETTING: {', '.join(of_listeners)}")
    if for_all:
        of_brokers = [name for name in changed if any(each in _PER_BROKER for each in synonyms_of(name))]
        if of_brokers:
            raise _invalid(f"these settings are set per broker, by its id: {', '.join(of_brokers)}")


def _check_value(name: str, value: str) -> None:
    kind = kind_of(name)
    text = value.strip()
    if kind == KINDS["bool"] and text.lower() not in ("true", "false"):
        raise _invalid(f"{name}={value} is not allowed: true or false")
    if kind in (KINDS["int"], KINDS["short"], KINDS["long"]):
        bits = {KINDS["int"]: 31, KINDS["short"]: 15, KINDS["long"]: 63}[kind]
        if not is_whole_number(text):
            raise _invalid(f"{name}={value} is not allowed: a whole number")
        least = _AT_LEAST.get(synonyms_of(name)[-1], -(1 << bits))
        if not least <= int(text) < 1 << bits:
            raise _invalid(f"{name}={value} is not allowed: from {least} to {(1 << bits) - 1}")
    elif kind == KINDS["double"]:
        try:
            parse_double(text)
        except ValueError:
            raise _invalid(f"{name}={value} is not allowed: a number") from None
    key = _TOPIC_KEYS.get(name)
    if key is not None and name not in _CHECKED_TOGETHER:
        try:
            key.parse(value)
        except ValueError:
            raise _invalid(f"{name}={value} is not allowed: {key.allowed}") from None


def _check_local_retention(name: str, local: int, whole: int) -> None:
    """-2 follows the retention of the whole log, -1 is without limit."""
    if whole != -1 and (local == -1 or local > whole):
        raise _invalid(f"{name}={local} is more than the whole log keeps, {whole}; -2 follows it")


def _number(settings: Mapping[str, str], name: str) -> int:
    return int(settings.get(name) or SETTINGS[name].default or 0)


def _check_together(settings: Mapping[str, str]) -> None:
    if _number({"log.retention.ms": "1", **settings}, "log.retention.ms") == 0:
        raise _invalid("log.retention.ms=0 is not allowed: 1 or more, or -1 for ever")
    if _number(settings, "log.cleaner.dedupe.buffer.size") // max(_number(settings, "log.cleaner.threads"), 1) < (
        _BYTES_PER_CLEANER
    ):
        raise _invalid("log.cleaner.dedupe.buffer.size must be at least 1 MB for each of log.cleaner.threads")
    for kind in ("consumer", "share", "streams"):
        low, high = f"group.{kind}.min.assignment.interval.ms", f"group.{kind}.max.assignment.interval.ms"
        name = f"group.{kind}.assignment.interval.ms"
        if not _number(settings, low) <= _number(settings, name) <= _number(settings, high):
            raise _invalid(f"{name}={_number(settings, name)} must lie between {low} and {high}")
    reporters = settings.get("metric.reporters", "").strip()
    for reporter in reporters.split(",") if reporters else ():
        if reporter.strip() not in _REPORTERS:
            raise _invalid(
                f"metric.reporters: there is no class '{reporter.strip()}' here; known is {', '.join(_REPORTERS)}"
            )
    cordoned = [part.strip() for part in settings.get("cordoned.log.dirs", "").split(",") if part.strip()]
    directories = [part.strip() for part in (settings.get("log.dirs") or settings.get("log.dir", "")).split(",")]
    missing = [path for path in cordoned if path not in directories]
    if cordoned != ["*"] and missing:
        raise _invalid(f"cordoned.log.dirs has {', '.join(missing)}, which log.dirs has not")


def _check_threads(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for name in _THREADS:
        old, new = _number(before, name), _number(after, name)
        least = max(old // 2, 1)
        if new != old and not least <= new <= old * 2:
            raise _invalid(f"{name}={new} is not allowed at once: it is {old}, so from {least} to {old * 2}")
