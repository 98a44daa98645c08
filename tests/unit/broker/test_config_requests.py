"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs as a broker answers them, with Kafka 4.3.1's codes."""

import logging
from collections.abc import Iterator

import pytest

from mainstem.broker.apis import k32_describe_configs, k33_alter_configs, k44_incremental_alter_configs
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.protocol.messages import k32_describe_configs as m32
from mainstem.protocol.messages import k33_alter_configs as m33
from mainstem.protocol.messages import k44_incremental_alter_configs as m44
from mainstem.protocol.messages.metadata_records import ConfigRecord
from mainstem.protocol.schema import Message
from tests.unit.broker.fake_broker import FakeBroker, context, run

SET, DELETE, APPEND = 0, 1, 2
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
REFUSED = int(ErrorCode.INVALID_REQUEST)

Change = tuple[str, int, str | None]


def controller_says_yes(message: Message) -> Message:
    if isinstance(message, m33.AlterConfigsRequest):
        return m33.AlterConfigsResponse(
            responses=[
                m33.AlterConfigsResourceResponse(
                    error_code=0, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
                )
                for one in reversed(message.resources)
            ]
        )
    assert isinstance(message, m44.IncrementalAlterConfigsRequest)
    return m44.IncrementalAlterConfigsResponse(
        responses=[
            m44.AlterConfigsResourceResponse(
                error_code=0, error_message=None, resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in reversed(message.resources)
        ]
    )


async def change(
    broker: FakeBroker, *resources: tuple[int, str, list[Change]], validate_only: bool = False
) -> list[tuple[int, int, str]]:
    request = m44.IncrementalAlterConfigsRequest(
        resources=[
            m44.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    m44.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )
    answer = await k44_incremental_alter_configs.handle(broker.as_broker, context(44, 1), request)
    return [(one.error_code, one.resource_type, one.resource_name) for one in answer.responses]


async def replace(broker: FakeBroker, *resources: tuple[int, str, dict[str, str | None]]) -> list[int]:
    request = m33.AlterConfigsRequest(
        resources=[
            m33.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[m33.AlterableConfig(name=key, value=value) for key, value in configs.items()],
            )
            for kind, name, configs in resources
        ],
        validate_only=False,
    )
    return [
        one.error_code for one in (await k33_alter_configs.handle(broker.as_broker, context(33, 2), request)).responses
    ]


def forwarded(broker: FakeBroker) -> list[tuple[int, str]]:
    return [
        (one.resource_type, one.resource_name)
        for message, _ in broker.controller.sent
        for one in message.resources  # type: ignore[attr-defined]
    ]


def test_what_is_refused_here_does_not_reach_the_controller_and_the_order_is_kept() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = controller_says_yes
        answers = await change(
            broker,
            (TOPIC, "a", [("retention.ms", SET, "5")]),
            (BROKER, "1", [("node.id", SET, "2")]),
            (BROKER, "", [("log.retention.ms", SET, "5000")]),
            (TOPIC, "b", [("retention.ms", SET, None)]),
            (GROUP, "g", []),
            (99, "x", []),
        )
        assert answers == [
            (0, TOPIC, "a"),
            (REFUSED, BROKER, "1"),
            (0, BROKER, ""),
            (REFUSED, TOPIC, "b"),
            (0, GROUP, "g"),
            (REFUSED, 99, "x"),
        ]
        assert forwarded(broker) == [(TOPIC, "a"), (BROKER, ""), (GROUP, "g")]

    run(story)


def test_a_resource_and_a_key_may_come_once() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = controller_says_yes
        twice = await change(broker, (TOPIC, "a", []), (TOPIC, "a", []), (TOPIC, "b", []))
        assert [code for code, _, _ in twice] == [REFUSED, REFUSED, 0]
        keys = await change(broker, (TOPIC, "a", [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)]))
        assert keys == [(REFUSED, TOPIC, "a")]
        assert await replace(broker, (TOPIC, "a", {"x": "1"}), (TOPIC, "a", {})) == [REFUSED, REFUSED]
        assert await change(broker) == []
        assert forwarded(broker) == [(TOPIC, "b")]

    run(story)


def test_a_controller_out_of_reach_is_an_error_for_what_was_left_to_it() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = lambda message: RemoteError(ErrorCode.NOT_CONTROLLER, "")
        answers = await change(broker, (TOPIC, "a", []), (99, "x", []))
        assert [code for code, _, _ in answers] == [ErrorCode.NOT_CONTROLLER, REFUSED]

    run(story)


@pytest.mark.parametrize("name", ["2", "x", " 1", "1.0"])
def test_a_broker_changes_its_own_settings_only(name: str) -> None:
    async def story(broker: FakeBroker) -> None:
        assert await change(broker, (BROKER, name, [("log.retention.ms", SET, "5")])) == [(REFUSED, BROKER, name)]
        assert await change(broker, (LOGGER, name, [("root", SET, "INFO")])) == [(REFUSED, LOGGER, name)]
        assert await replace(broker, (BROKER, name, {"log.retention.ms": "5"})) == [REFUSED]

    run(story)


def test_operations_are_checked_on_what_is_stored() -> None:
    async def story(broker: FakeBroker) -> None:
        broker.controller.answer = controller_says_yes
        await broker.replay(ConfigRecord(resource_type=4, resource_name="1", name="num.io.threads", value="16"))
        grown = await change(broker, (BROKER, "1", [("num.io.threads", SET, "32")]), validate_only=True)
        assert grown == [(0, BROKER, "1")]
        assert await change(broker, (BROKER, "1", [("num.io.threads", DELETE, None)])) == [(0, BROKER, "1")]
        assert await change(broker, (BROKER, "1", [("log.retention.ms", APPEND, "1")])) == [
            (ErrorCode.INVALID_CONFIG, BROKER, "1")
        ]
        assert await change(broker, (BROKER, "1", [("log.retention.ms", 9, "1")])) == [(REFUSED, BROKER, "1")]
        assert await replace(broker, (BROKER, "1", {}), (LOGGER, "1", {})) == [0, REFUSED]

    run(story)


@pytest.fixture
def a_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("mainstem.a_logger_for_tests")
    logger.setLevel(logging.NOTSET)
    yield logger
    logger.setLevel(logging.NOTSET)


def test_levels_of_loggers_are_changed_here(a_logger: logging.Logger) -> None:
    async def story(broker: FakeBroker) -> None:
        async def one(name: str, how: int, value: str | None, validate_only: bool = False) -> int:
            return (await change(broker, (LOGGER, "1", [(name, how, value)]), validate_only=validate_only))[0][0]

        name = a_logger.name
        assert await one(name, SET, "DEBUG", validate_only=True) == 0
        assert a_logger.level == logging.NOTSET
        assert await one(name, SET, "DEBUG") == 0
        assert a_logger.level == logging.DEBUG
        assert told(broker, LOGGER, "1")[name] == ("DEBUG", 6)
        assert await one(name, SET, "debug") == ErrorCode.INVALID_CONFIG
        assert await one("no.such.logger", SET, "INFO") == ErrorCode.INVALID_CONFIG
        assert await one(name, APPEND, "INFO") == REFUSED
        assert await one("root", DELETE, None) == REFUSED
        assert await one(name, DELETE, None) == 0
        assert a_logger.level == logging.NOTSET
        assert broker.controller.sent == []

    run(story)


def told(broker: FakeBroker, kind: int, name: str, keys: list[str] | None = None) -> dict[str, tuple[str | None, int]]:
    [result] = describe(broker, (kind, name), keys=keys).results
    assert (result.error_code, result.error_message) == (0, "")
    return {one.name: (one.value, one.config_source) for one in result.configs}


def describe(
    broker: FakeBroker, *resources: tuple[int, str], keys: list[str] | None = None, documentation: bool = False
) -> m32.DescribeConfigsResponse:
    request = m32.DescribeConfigsRequest(
        resources=[
            m32.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ],
        include_documentation=documentation,
    )
    return k32_describe_configs.handle(broker.as_broker, context(32, 4), request)


def test_no_keys_are_all_keys_and_unknown_ones_are_left_out() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t", retention_ms="5")
        assert len(told(broker, TOPIC, "t")) == len(told(broker, TOPIC, "t", [])) == 33
        assert told(broker, TOPIC, "t", ["retention.ms", "retention.ms", "nope"]) == {"retention.ms": ("5", 1)}
        assert told(broker, BROKER, "") == {}
        assert told(broker, BROKER, "1", ["node.id", "log.dir"]) == {
            "node.id": ("1", 4),
            "log.dir": ("/tmp/kafka-logs", 5),
        }

    run(story)


def test_documentation_comes_when_asked_for() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t")
        for wanted in (True, False):
            [result] = describe(broker, (TOPIC, "t"), documentation=wanted).results
            assert all((one.documentation is not None) == wanted for one in result.configs)

    run(story)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(kind: int, name: str, code: ErrorCode) -> None:
    async def story(broker: FakeBroker) -> None:
        [result] = describe(broker, (kind, name)).results
        assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
        assert result.configs == []

    run(story)


def test_dynamic_settings_of_a_broker_give_topics_their_defaults() -> None:
    async def story(broker: FakeBroker) -> None:
        await broker.create_topic("t")
        await broker.create_topic("own", retention_ms="5")
        logs = [broker.partitions.find(name, 0).log for name in ("t", "own")]
        for name, value, expected in (("", "7000", 7000), ("1", "8000", 8000), ("2", "9000", 8000)):
            await broker.replay(
                ConfigRecord(resource_type=BROKER, resource_name=name, name="log.retention.ms", value=value)
            )
            assert [one.config.retention_ms for one in logs] == [expected, 5]
        for name in ("1", ""):
            await broker.replay(
                ConfigRecord(resource_type=BROKER, resource_name=name, name="log.retention.ms", value=None)
            )
        assert [one.config.retention_ms for one in logs] == [3_600_000, 5]
        await broker.replay(ConfigRecord(resource_type=BROKER, resource_name="", name="log.roll.ms", value="bad"))
        assert logs[0].config.retention_ms == 3_600_000

    run(story, log_retention_hours="1")
