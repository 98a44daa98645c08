"""Configs of topics, brokers, loggers and groups: what they are, where each value comes from, and changing them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from mainstem.client.admin_base import AdminBase, outcome
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import KafkaError, raise_for
from mainstem.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from mainstem.protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from mainstem.protocol.messages.k74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


class ResourceType(IntEnum):
    """What has configs; the numbers are those of the wire."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """Something that has configs. A broker's name is its id; the empty name is the default of all brokers."""

    kind: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """One broker, or the default of all."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(ResourceType.GROUP, group_id)


class ConfigSource(IntEnum):
    """Where a value comes from, the nearest that has one."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


_TYPES: Final = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config. The value of a sensitive one is None; `kind` is Kafka's name for its type."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    kind: str
    documentation: str
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT_CONFIG


class ConfigOperation(IntEnum):
    """SET and DELETE a value (back to its default); APPEND to and SUBTRACT from a list."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


class ConfigAdmin(AdminBase):
    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        names: Iterable[str] | None = None,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The configs of each resource by name, all of them or only `names`."""
        keys = None if names is None else list(names)

        async def attempt(
            asked: list[ConfigResource],
        ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            results: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
            for connection, theirs in await self._owners(asked):
                request = DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(
                            resource_type=each.kind, resource_name=each.name, configuration_keys=keys
                        )
                        for each in theirs
                    ],
                    include_synonyms=include_synonyms,
                    include_documentation=include_documentation,
                )
                answer = await connection.ask(request, DescribeConfigsResponse)
                for each in answer.results:
                    entries = {entry.name: _entry(entry) for entry in each.configs}
                    resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
                    results[resource] = outcome(entries, each.error_code, each.error_message, **_where(resource))
            return results

        return await self._each(resources, attempt, "describing configs")

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None] | Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Changes some configs of each resource and leaves the others (KIP-339).

        A mapping sets what has a value, and gives what has None its default back.
        """
        wanted = {resource: _changes(each) for resource, each in changes.items()}

        async def attempt(asked: list[ConfigResource]) -> dict[ConfigResource, KafkaError | None]:
            results: dict[ConfigResource, KafkaError | None] = {}
            for connection, theirs in await self._owners(asked, to_change=True):
                request = IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(
                            resource_type=resource.kind,
                            resource_name=resource.name,
                            configs=[
                                AlterableConfig(name=each.name, config_operation=each.operation, value=each.value)
                                for each in wanted[resource]
                            ],
                        )
                        for resource in theirs
                    ],
                    validate_only=validate_only,
                )
                answer = await connection.ask(request, IncrementalAlterConfigsResponse)
                for each in answer.responses:
                    resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
                    results[resource] = outcome(None, each.error_code, each.error_message, **_where(resource))
            return results

        await self._each(wanted, attempt, "altering configs")

    async def list_config_resources(self, kinds: Iterable[ResourceType] = ()) -> list[ConfigResource]:
        """What has configs of its own (Kafka 4.1 and later)."""
        asked = list(kinds)

        async def attempt() -> list[ConfigResource]:
            connection = await self._any()
            answer = await connection.ask(
                ListConfigResourcesRequest(resource_types=[int(kind) for kind in asked]), ListConfigResourcesResponse
            )
            raise_for(answer.error_code, "listing config resources", broker=connection.name)
            return sorted(
                ConfigResource(ResourceType(each.resource_type), each.resource_name) for each in answer.config_resources
            )

        return await self._once(attempt, "listing config resources")

    async def _owners(
        self, resources: list[ConfigResource], *, to_change: bool = False
    ) -> list[tuple[BrokerConnection, list[ConfigResource]]]:
        """Whom to ask about which: a broker about itself and its loggers, anybody about all else."""
        rest: list[ConfigResource] = []
        owners: list[tuple[BrokerConnection, list[ConfigResource]]] = []
        await self._any()
        for resource in resources:
            is_of_node = resource.kind == ResourceType.BROKER_LOGGER or (
                resource.kind == ResourceType.BROKER and resource.name != ""
            )
            if is_of_node and resource.name.isdecimal():
                owners.append((await self.cluster.node(int(resource.name)), [resource]))
            else:
                rest.append(resource)
        if rest:
            owners.append((await (self._controller() if to_change else self._any()), rest))
        return owners


def _entry(found: DescribeConfigsResourceResult) -> ConfigEntry:
    synonyms = tuple(ConfigSynonym(each.name, each.value, _source(each.source)) for each in found.synonyms)
    kind = _TYPES[found.config_type] if 0 <= found.config_type < len(_TYPES) else _TYPES[0]
    return ConfigEntry(
        found.name,
        found.value,
        _source(found.config_source),
        found.read_only,
        found.is_sensitive,
        kind,
        found.documentation or "",
        synonyms,
    )


def _changes(given: Mapping[str, str | None] | Iterable[ConfigChange]) -> list[ConfigChange]:
    if not isinstance(given, Mapping):
        return list(given)
    return [
        ConfigChange(name, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET)
        for name, value in given.items()
    ]


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN


def _where(resource: ConfigResource) -> dict[str, str]:
    if resource.kind == ResourceType.TOPIC:
        return {"topic": resource.name}
    return {"broker": resource.name} if resource.kind == ResourceType.BROKER and resource.name else {}
