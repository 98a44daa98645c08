"""DescribeConfigs (key 32), versions 1–4: settings of topics, brokers, groups and others, and where they come from.

v1 tells sources and synonyms, v3 types and documentation. No keys, null or empty, are all of them. A broker tells its
own settings (by its id) and the cluster's dynamic defaults (by the empty name).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mainstem.broker import loggers
from mainstem.broker.config_requests import BROKER_LOGGER, check_this_node
from mainstem.broker.config_view import ConfigView, Entry, Source
from mainstem.broker.context import RequestContext
from mainstem.broker.topic_creation import is_legal_name
from mainstem.core.controller.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

API_KEY = 32
MIN_VERSION = 1
MAX_VERSION = 4


def handle(broker: "Broker", context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    view = ConfigView(broker.config.given, broker.image, broker.node_id)
    results = []
    for resource in request.resources:
        try:
            entries = _find(broker, view, resource)
        except RemoteError as error:
            results.append(_result(resource, error.code, error.message, []))
            continue
        if resource.configuration_keys:
            keys = set(resource.configuration_keys)
            entries = [entry for entry in entries if entry.name in keys]
        configs = [_told(entry, request) for entry in entries]
        results.append(_result(resource, ErrorCode.NONE, "", configs))
    return DescribeConfigsResponse(results=results)


def _result(
    resource: DescribeConfigsResource,
    code: ErrorCode,
    message: str,
    configs: list[DescribeConfigsResourceResult],
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _told(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.kind,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _find(broker: "Broker", view: ConfigView, resource: DescribeConfigsResource) -> list[Entry]:
    find = _FIND.get(resource.resource_type)
    if find is None:
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"there are no configs of type {resource.resource_type}")
    return find(broker, view, resource.resource_name)


def _topic(broker: "Broker", view: ConfigView, name: str) -> list[Entry]:
    if not is_legal_name(name):
        raise RemoteError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{name}' cannot be a topic's name")
    if name not in broker.image.topics:
        raise RemoteError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return view.topic(name)


def _broker(broker: "Broker", view: ConfigView, name: str) -> list[Entry]:
    if not name:
        return view.broker_defaults()
    check_this_node(broker, name)
    return view.broker()


def _loggers(broker: "Broker", view: ConfigView, name: str) -> list[Entry]:
    if not name:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "loggers are those of a broker: its id is missing")
    check_this_node(broker, name)
    return [Entry(logger, level, Source.LOGGER) for logger, level in loggers.levels().items()]


def _group(broker: "Broker", view: ConfigView, name: str) -> list[Entry]:
    if not name:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "a group's id is not empty")
    return view.group(name)


def _client_metrics(broker: "Broker", view: ConfigView, name: str) -> list[Entry]:
    if not name:
        raise RemoteError(ErrorCode.INVALID_REQUEST, "the name of a subscription to client metrics is not empty")
    return view.client_metrics(name)


_FIND: dict[int, Callable[["Broker", ConfigView, str], list[Entry]]] = {
    TOPIC: _topic,
    BROKER: _broker,
    BROKER_LOGGER: _loggers,
    CLIENT_METRICS: _client_metrics,
    GROUP: _group,
}
