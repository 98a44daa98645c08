"""Settings of topics, brokers and groups: described and changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from mainstem.client.admin_base import AdminBase, raise_first
from mainstem.client.admin_types import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from mainstem.client.connection import BrokerConnection
from mainstem.client.errors import KafkaError, UnsupportedVersionError, error_for, raise_for
from mainstem.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
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

_TYPES: Final = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
"""Kafka's names of the types that values have, by their number on the wire."""


class ConfigsAdmin(AdminBase):
    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of each resource by name: all of them, or those that `names` asks for."""
        keys = None if names is None else list(names)
        found: dict[ConfigResource, dict[str, ConfigEntry]] = {}
        failed: dict[ConfigResource, KafkaError] = {}
        for node_id, asked in _by_node(resources).items():

            async def ask(connection: BrokerConnection, asked: list[ConfigResource] = asked) -> DescribeConfigsResponse:
                request = DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(
                            resource_type=each.type, resource_name=each.name, configuration_keys=keys
                        )
                        for each in asked
                    ]
                )
                if documentation and connection.version_for(request.API_KEY) >= 3:
                    request.include_documentation = True
                return await connection.ask(request, DescribeConfigsResponse)

            answer = await self._on_node(node_id, ask, timeout_ms, "describing settings")
            for each in answer.results:
                resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
                if each.error_code != 0:
                    failed[resource] = _error(each.error_code, each.error_message, resource)
                    continue
                found[resource] = {
                    one.name: ConfigEntry(
                        one.name,
                        one.value,
                        one.config_source,
                        one.read_only,
                        one.is_sensitive,
                        one.documentation or None,
                        _TYPES[one.config_type] if 0 <= one.config_type < len(_TYPES) else _TYPES[0],
                    )
                    for one in each.configs
                }
        raise_first(failed)
        return found

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None] | Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Changes settings, and leaves the others as they are.

        A mapping sets what has a value and takes back what has None; `ConfigChange`s can also add to and take from
        settings that are lists.
        """
        wanted = {resource: _changes(each) for resource, each in changes.items()}
        failed: dict[ConfigResource, KafkaError] = {}
        for node_id, asked in _by_node(wanted).items():

            async def ask(
                connection: BrokerConnection, asked: list[ConfigResource] = asked
            ) -> IncrementalAlterConfigsResponse:
                request = IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(
                            resource_type=each.type,
                            resource_name=each.name,
                            configs=[
                                AlterableConfig(name=one.name, config_operation=one.operation, value=one.value)
                                for one in wanted[each]
                            ],
                        )
                        for each in asked
                    ],
                    validate_only=validate_only,
                )
                return await connection.ask(request, IncrementalAlterConfigsResponse)

            answer = await self._on_node(node_id, ask, timeout_ms, "changing settings")
            for each in answer.responses:
                if each.error_code != 0:
                    resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
                    failed[resource] = _error(each.error_code, each.error_message, resource)
        raise_first(failed)

    async def list_config_resources(
        self, types: Iterable[ResourceType] = (), *, timeout_ms: float | None = None
    ) -> list[ConfigResource]:
        """Everything that has settings, or what there is of these types."""
        kinds = list(types)

        async def ask(connection: BrokerConnection) -> list[ConfigResource]:
            version = connection.version_for(ListConfigResourcesRequest.API_KEY)
            if version < 1:
                raise UnsupportedVersionError("the broker lists only client metrics", broker=connection.name)
            request = ListConfigResourcesRequest(resource_types=[int(kind) for kind in kinds])
            answer = await connection.ask(request, ListConfigResourcesResponse)
            raise_for(answer.error_code, "listing what has settings", broker=connection.name)
            return [
                ConfigResource(ResourceType(each.resource_type), each.resource_name) for each in answer.config_resources
            ]

        return await self._on_any(ask, timeout_ms, "listing what has settings")


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """What one broker's own settings are, only that broker knows; any knows the rest."""
    found: dict[int | None, list[ConfigResource]] = {}
    for resource in resources:
        is_one_broker = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
        found.setdefault(int(resource.name) if is_one_broker else None, []).append(resource)
    return found


def _changes(given: Mapping[str, str | None] | Iterable[ConfigChange]) -> list[ConfigChange]:
    if isinstance(given, Mapping):
        return [ConfigChange.to(name, value) for name, value in given.items()]
    return list(given)


def _error(code: int, message: str | None, resource: ConfigResource) -> KafkaError:
    topic = resource.name if resource.type == ResourceType.TOPIC else None
    what = f"{resource.type.name.lower()} {resource.name!r}"
    return error_for(code, f"{what}: {message}" if message else what, topic=topic)
