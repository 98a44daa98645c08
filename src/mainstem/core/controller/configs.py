"""Configs: AlterConfigs and IncrementalAlterConfigs, and what a topic's settings come to.

What is checked here is what Kafka's controller checks: topic configs as a whole, groups and client metrics by their
own tables. Configs of brokers are only stored; the broker that receives the request checks them, because only it knows
its own settings.

`min.insync.replicas` is special while eligible leader replicas are on (KIP-966): the controller decides by it, so it is
the cluster's or a topic's but never one broker's, it cannot be taken away from the cluster, and a change of it clears
whom it had made eligible.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from mainstem.core.controller.context import MIN_INSYNC_REPLICAS, Context, Decision
from mainstem.core.controller.image import BROKER, TOPIC, Resource
from mainstem.core.controller.names import check_topic_name
from mainstem.core.log.config import TOPIC_CONFIGS, ConfigKey, ConfigType, parse_log_config
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.java import split_list
from mainstem.protocol.messages import k33_alter_configs as k33
from mainstem.protocol.messages import k44_incremental_alter_configs as k44
from mainstem.protocol.messages.k19_create_topics import CreatableTopicConfigs
from mainstem.protocol.messages.metadata_records import ClearElrRecord, ConfigRecord
from mainstem.protocol.schema import Message

SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS: Final = ("SET", "DELETE", "APPEND", "SUBTRACT")

SOURCE_TOPIC, SOURCE_BROKER, SOURCE_ALL_BROKERS, SOURCE_STATIC, SOURCE_DEFAULT = range(1, 6)

# What a group may set for itself, and the bounds that Kafka's defaults for groups give.
_GROUP_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "consumer.session.timeout.ms": (45000, 60000),
    "consumer.heartbeat.interval.ms": (5000, 15000),
    "consumer.assignment.interval.ms": (0, 15000),
    "share.session.timeout.ms": (45000, 60000),
    "share.heartbeat.interval.ms": (5000, 15000),
    "share.assignment.interval.ms": (0, 15000),
    "share.record.lock.duration.ms": (15000, 60000),
    "share.delivery.count.limit": (2, 10),
    "share.partition.max.record.locks": (100, 4000),
    "streams.session.timeout.ms": (45000, 60000),
    "streams.heartbeat.interval.ms": (5000, 15000),
    "streams.assignment.interval.ms": (0, 15000),
    "streams.initial.rebalance.delay.ms": (0, 0x7FFFFFFF),
    "streams.num.standby.replicas": (0, 2),
}
_GROUP_TEXTS: Final[dict[str, re.Pattern[str]]] = {
    "share.auto.offset.reset": re.compile(r"latest|earliest|by_duration:.+"),
    "share.isolation.level": re.compile(r"read_committed|read_uncommitted"),
    "share.renew.acknowledge.enable": re.compile(r"true|false", re.IGNORECASE),
}

_METRICS_INTERVAL_MS: Final = (100, 3_600_000)
_METRICS_MATCHES: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


# -- what a topic's settings come to -------------------------------------------------------------------------------


def topic_config_records(context: Context, topic: str, configs: Mapping[str, str | None]) -> list[ConfigRecord]:
    """The records for the configs that a topic is created with; RemoteError where one is wrong."""
    for name, value in configs.items():
        if value is None:
            raise _invalid(f"Null value not supported for topic configs: {name}")
    given = {name: value for name, value in configs.items() if value is not None}
    _check_topic(context, given)
    return [
        ConfigRecord(resource_type=TOPIC, resource_name=topic, name=name, value=value)
        for name, value in sorted(given.items())
    ]


def effective_configs(context: Context, own: Mapping[str, str]) -> list[CreatableTopicConfigs]:
    """Every setting of a topic that has set `own`, with where it comes from."""
    found = []
    for key in TOPIC_CONFIGS.values():
        if not key.internal:
            value, source = _effective(context, key, own)
            found.append(
                CreatableTopicConfigs(
                    name=key.name, value=value, read_only=False, config_source=source, is_sensitive=False
                )
            )
    return found


def _effective(context: Context, key: ConfigKey, own: Mapping[str, str]) -> tuple[str | None, int]:
    if key.name in own:
        return own[key.name], SOURCE_TOPIC
    image, settings = context.image, context.settings
    default = key.format(settings.log_defaults.value(key.name))
    for synonym in key.synonyms:
        for configs, source in (
            (image.config(BROKER, str(settings.node_id)), SOURCE_BROKER),
            (image.config(BROKER, ""), SOURCE_ALL_BROKERS),
        ):
            if synonym.name in configs:
                return configs[synonym.name], source
        if synonym.name in settings.given:
            return default, SOURCE_STATIC
    return default, SOURCE_DEFAULT


def _check_topic(context: Context, own: Mapping[str, str]) -> None:
    for name in own:
        if name not in TOPIC_CONFIGS:
            raise _invalid(f"Unknown topic config name: {name}")
    try:
        config = parse_log_config(own, context.settings.log_defaults)
    except ValueError as error:
        raise _invalid(str(error)) from None
    if config.remote_storage_enable:
        raise _invalid("remote.storage.enable=true is not allowed: there is no remote storage, so it must be false")


# -- the requests --------------------------------------------------------------------------------------------------


def incremental_alter_configs(context: Context, request: k44.IncrementalAlterConfigsRequest) -> Decision:
    times = Counter((one.resource_type, one.resource_name) for one in request.resources)
    records: list[Message] = []
    responses = []
    for resource, count in times.items():
        code, message = ErrorCode.NONE, None
        try:
            if count > 1:
                raise RemoteError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            asked = next(one for one in request.resources if (one.resource_type, one.resource_name) == resource)
            wanted = _changed(context, resource, asked.configs)
            _check_resource(context, resource)
            changes = _change(context, resource, wanted)
            _check_exists(context, resource)
            records += changes
        except RemoteError as error:
            code, message = error.code, error.message
        responses.append(
            k44.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=resource[0], resource_name=resource[1]
            )
        )
    answer = k44.IncrementalAlterConfigsResponse(responses=responses)
    return Decision(answer, [] if request.validate_only else records)


def alter_configs(context: Context, request: k33.AlterConfigsRequest) -> Decision:
    """The old way: what the request does not name goes."""
    times = Counter((one.resource_type, one.resource_name) for one in request.resources)
    records: list[Message] = []
    responses = []
    for resource, count in times.items():
        code, message = ErrorCode.NONE, None
        try:
            if count > 1:
                raise RemoteError(ErrorCode.INVALID_REQUEST, "Duplicate resource.")
            _check_resource(context, resource)
            asked = next(one for one in request.resources if (one.resource_type, one.resource_name) == resource)
            wanted: dict[str, str | None] = {config.name: config.value for config in asked.configs}
            for name in context.image.config(*resource):
                wanted.setdefault(name, None)
            changes = _change(context, resource, wanted)
            _check_exists(context, resource)
            records += changes
        except RemoteError as error:
            code, message = error.code, error.message
        responses.append(
            k33.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=resource[0], resource_name=resource[1]
            )
        )
    answer = k33.AlterConfigsResponse(responses=responses)
    return Decision(answer, [] if request.validate_only else records)


def _changed(context: Context, resource: Resource, changes: list[k44.AlterableConfig]) -> dict[str, str | None]:
    """The new value of each config that is named; None takes it away. A later change of one wins."""
    wanted: dict[str, str | None] = {}
    current = context.image.config(*resource)
    for change in changes:
        name = change.name
        match change.config_operation:
            case 0:  # SET
                wanted[name] = change.value
            case 1:  # DELETE
                wanted[name] = None
            case 2 | 3:  # APPEND, SUBTRACT
                default = _list_default(context, resource, name)
                if default is None:
                    operation = OPERATIONS[change.config_operation]
                    raise _invalid(f"Can't {operation} to key {name} because its type is not LIST.")
                parts = [part for part in current.get(name, default).split(",") if part]
                given = split_list(change.value or "")
                if change.config_operation == APPEND:
                    parts += [part for part in given if part not in parts]
                else:
                    parts = [part for part in parts if part not in given]
                wanted[name] = ",".join(parts)
            case _:
                raise RemoteError(
                    ErrorCode.INVALID_REQUEST, f"Unknown config operation {change.config_operation} for {name}."
                )
    return wanted


def _list_default(context: Context, resource: Resource, name: str) -> str | None:
    """What a list is while nobody has set it; None where the config is no list."""
    match resource[0]:
        case 2:  # TOPIC
            key = TOPIC_CONFIGS.get(name)
            if key is None or key.type is not ConfigType.LIST:
                return None
            return key.format(context.settings.log_defaults.value(name)) or ""
        case 4:  # BROKER
            return context.settings.broker_lists.get(name)
        case _:
            return None


def _change(context: Context, resource: Resource, wanted: Mapping[str, str | None]) -> list[Message]:
    """The records that bring a resource's configs to what is wanted; RemoteError where that is not allowed."""
    current = context.image.config(*resource)
    merged = dict(current)
    records: list[Message] = []
    clears_elr = False
    for name, value in wanted.items():
        is_min_in_sync = name == MIN_INSYNC_REPLICAS and resource[0] in (TOPIC, BROKER) and context.elr_enabled
        if is_min_in_sync:
            _check_min_in_sync(resource, value)
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
        # A broker reads files anew that a setting names, so it is told of one that stays as it is (KAFKA-14136).
        told = resource[0] == BROKER or (is_min_in_sync and value is not None)
        if value != current.get(name) or told:
            records.append(ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value))
            clears_elr = clears_elr or is_min_in_sync
    _check_configs(context, resource, merged)
    if clears_elr:
        records.append(ClearElrRecord(topic_name=resource[1] if resource[0] == TOPIC else ""))
    return records


def _check_min_in_sync(resource: Resource, value: str | None) -> None:
    if resource[0] == TOPIC:
        return
    if resource[1]:
        raise _invalid("Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
    if value is None:
        raise _invalid("Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
    if not value.isdecimal() or int(value) < 1:
        raise _invalid(f"{MIN_INSYNC_REPLICAS}={value} is not allowed: 1 or more")


def _check_resource(context: Context, resource: Resource) -> None:
    """RemoteError unless the resource may have configs."""
    kind, name = resource
    match kind:
        case 2:  # TOPIC
            if not name:
                raise RemoteError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            check_topic_name(name)
        case 4:  # BROKER
            _check_broker_name(context, name)
        case 16:  # CLIENT_METRICS
            if not name:
                raise RemoteError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        case 32:  # GROUP
            if not name:
                raise RemoteError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        case 8:  # BROKER_LOGGER: a matter of the broker that is asked
            raise RemoteError(ErrorCode.INVALID_REQUEST, "The log levels of a broker are not kept by the controller.")
        case _:
            raise RemoteError(ErrorCode.UNSUPPORTED_VERSION, f"Unknown resource type {kind}.")


def _check_exists(context: Context, resource: Resource) -> None:
    """Asked last, as Kafka asks: what is wrong with the configs themselves comes first."""
    kind, name = resource
    if kind == TOPIC and name not in context.image.topics:
        raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_broker_name(context: Context, name: str) -> None:
    if not name:
        return
    try:
        broker_id = int(name)
    except ValueError:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.") from None
    if broker_id < 0:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    if broker_id not in context.image.brokers and broker_id not in context.image.controllers:
        raise RemoteError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {broker_id} found.")


def _check_configs(context: Context, resource: Resource, merged: Mapping[str, str]) -> None:
    match resource[0]:
        case 2:  # TOPIC
            _check_topic(context, merged)
        case 16:  # CLIENT_METRICS
            _check_client_metrics(merged)
        case 32:  # GROUP
            _check_group(merged)


def _check_client_metrics(merged: Mapping[str, str]) -> None:
    for name, value in merged.items():
        match name:
            case "interval.ms":
                low, high = _METRICS_INTERVAL_MS
                if not value.isdecimal() or not low <= int(value) <= high:
                    raise RemoteError(
                        ErrorCode.INVALID_REQUEST,
                        f"Invalid value {value} for interval.ms, interval must be between {low} and {high} (1 hour)",
                    )
            case "metrics":
                pass
            case "match":
                for pattern in value.split(","):
                    what, equals, _ = pattern.partition("=")
                    if pattern.strip() and (not equals or what.strip() not in _METRICS_MATCHES):
                        raise _invalid(f"Illegal client matching pattern: {pattern}")
            case _:
                raise RemoteError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")


def _check_group(merged: Mapping[str, str]) -> None:
    for name, value in merged.items():
        if name in _GROUP_NUMBERS:
            low, high = _GROUP_NUMBERS[name]
            if not value.lstrip("-").isdecimal():
                raise _invalid(f"Invalid value {value} for configuration {name}: Not a number of type INT")
            if not low <= int(value) <= high:
                raise _invalid(f"{name}={value} is not allowed: {low} to {high}")
        elif name in _GROUP_TEXTS:
            if _GROUP_TEXTS[name].fullmatch(value) is None:
                raise _invalid(f"Invalid value {value} for configuration {name}")
        else:
            raise _invalid(f"Unknown group config name: {name}")


def _invalid(message: str) -> RemoteError:
    return RemoteError(ErrorCode.INVALID_CONFIG, message)
