import pytest

from mainstem.client.errors import InvalidOptionError
from mainstem.client.options import AdminOptions, CommonOptions, ConsumerOptions, ProducerOptions


def test_defaults_are_those_of_kafka_4() -> None:
    producer = ProducerOptions.from_kwargs({})
    assert (producer.linger_ms, producer.batch_size, producer.acks, producer.enable_idempotence) == (5, 16384, -1, True)
    assert (producer.delivery_timeout_ms, producer.max_in_flight_requests_per_connection) == (120_000, 5)
    consumer = ConsumerOptions.from_kwargs({"group_id": "g"})
    assert (consumer.session_timeout_ms, consumer.auto_offset_reset, consumer.enable_auto_commit) == (
        45_000,
        "latest",
        True,
    )
    assert AdminOptions.from_kwargs({}).default_api_timeout_ms == 60_000


def test_kafkas_own_spelling_and_strings_are_understood() -> None:
    options = ProducerOptions.from_kwargs(
        {"bootstrap.servers": "a:1, b:2", "linger.ms": "7", "partitioner_ignore_keys": "true", "acks": "all"}
    )
    assert options.addresses == [("a", 1), ("b", 2)]
    assert (options.linger_ms, options.partitioner_ignore_keys) == (7, True)


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("host", ("host", 9092)),
        ("[::1]:19092", ("::1", 19092)),
        ("[::1]", ("::1", 9092)),
        ("PLAINTEXT://host:1", ("host", 1)),
    ],
)
def test_a_server_is_a_host_with_or_without_a_port(server: str, address: tuple[str, int]) -> None:
    assert ProducerOptions(bootstrap_servers=server).addresses == [address]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"lingerms": 5}, "a producer has no option 'lingerms'; did you mean 'linger_ms'?"),
        ({"linger.sm": 5}, "a producer has no option 'linger.sm'; did you mean 'linger_ms'?"),
        ({"linger_ms": 5, "linger.ms": 6}, "linger_ms is given twice, the second time as 'linger.ms'"),
        ({"linger_ms": -1}, "linger_ms is -1; it is at least 0"),
        ({"batch_size": "large"}, "batch_size is 'large'; it is a number"),
        ({"batch_size": 1.5}, "batch_size is 1.5; it is a number without a fraction"),
        (
            {"compression_type": "brotli"},
            "compression_type is 'brotli'; it is one of none, gzip, snappy, lz4, zstd",
        ),
        ({"acks": 2}, "acks is 2; it is 0, 1 or 'all'"),
        ({"enable_idempotence": "maybe"}, "enable_idempotence is 'maybe'; it is True or False"),
        ({"value_serializer": 5}, "value_serializer is 5; it is something to call, or None"),
        ({"acks": 1, "enable_idempotence": True}, "acks is 1; it must be 'all' while enable_idempotence is True"),
        ({"bootstrap_servers": "a:b"}, "bootstrap_servers has 'a:b'; each is 'host:port'"),
    ],
)
def test_a_mistake_is_one_sentence_that_says_what_to_do(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        ProducerOptions.from_kwargs(given)
    assert str(caught.value) == sentence


def test_idempotence_gives_way_to_acks_unless_it_was_asked_for() -> None:
    assert ProducerOptions.from_kwargs({"acks": 1}).enable_idempotence is False
    with pytest.raises(InvalidOptionError, match="must be 'all'"):
        ProducerOptions.from_kwargs({"acks": 1, "transactional_id": "t"})


def test_the_delivery_timeout_covers_lingering_and_one_request() -> None:
    with pytest.raises(InvalidOptionError, match="must be at least linger_ms"):
        ProducerOptions.from_kwargs({"delivery_timeout_ms": 100})


def test_the_delivery_timeout_gives_way_to_a_longer_wait_for_answers_unless_it_was_asked_for() -> None:
    waiting = ProducerOptions.from_kwargs({"request.timeout.ms": "180000", "linger.ms": "0.5"})
    assert waiting.delivery_timeout_ms == 180_001
    assert ProducerOptions.from_kwargs({"request_timeout_ms": 60_000}).delivery_timeout_ms == 120_000
    with pytest.raises(InvalidOptionError, match="must be at least linger_ms"):
        ProducerOptions.from_kwargs({"request_timeout_ms": 180_000, "delivery_timeout_ms": 120_000})
    with pytest.raises(InvalidOptionError, match="request_timeout_ms is 'long'; it is a number"):
        ProducerOptions.from_kwargs({"request_timeout_ms": "long"})


def test_without_a_group_nothing_is_committed() -> None:
    assert ConsumerOptions.from_kwargs({}).enable_auto_commit is False
    with pytest.raises(InvalidOptionError, match="without a group_id"):
        ConsumerOptions.from_kwargs({"group_instance_id": "i"})


@pytest.mark.parametrize("reset", ["earliest", "none", "by_duration:PT5M", "by_duration:P1DT2H"])
def test_a_reset_may_be_a_duration(reset: str) -> None:
    assert ConsumerOptions.from_kwargs({"auto_offset_reset": reset}).auto_offset_reset == reset


@pytest.mark.parametrize("reset", ["soon", "by_duration:5m", "by_duration:P1DT", "by_duration:P"])
def test_a_reset_that_means_nothing_is_refused(reset: str) -> None:
    with pytest.raises(InvalidOptionError, match="ISO 8601"):
        ConsumerOptions.from_kwargs({"auto_offset_reset": reset})


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("range, sticky", ("range", "sticky")),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", ("cooperative-sticky",)),
        (["RoundRobinAssignor", "range"], ("roundrobin", "range")),
    ],
)
def test_assignors_go_by_their_names_or_javas(given: object, names: tuple[str, ...]) -> None:
    options = ConsumerOptions.from_kwargs({"partition.assignment.strategy": given})
    assert options.partition_assignment_strategy == names


@pytest.mark.parametrize("given", ["", []])
def test_no_assignor_at_all_is_refused(given: object) -> None:
    with pytest.raises(InvalidOptionError, match="partition_assignment_strategy is empty"):
        ConsumerOptions.from_kwargs({"partition_assignment_strategy": given})


PLAIN_TEXT = "this client connects in plain text only: TLS and SASL are not there yet"


@pytest.mark.parametrize("options", [ProducerOptions, ConsumerOptions, AdminOptions])
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"security_protocol": "SASL_SSL"}, f"security_protocol is 'SASL_SSL'; {PLAIN_TEXT}"),
        ({"security.protocol": "SSL"}, f"security_protocol is 'SSL'; {PLAIN_TEXT}"),
        ({"sasl_mechanism": "PLAIN"}, f"sasl_mechanism is given; {PLAIN_TEXT}"),
        ({"ssl.ca.location": "ca.pem"}, f"ssl.ca.location is given; {PLAIN_TEXT}"),
    ],
)
def test_what_would_need_tls_or_sasl_says_that_they_are_not_there(
    options: type[CommonOptions], given: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        options.from_kwargs(given)
    assert str(caught.value) == sentence


def test_plain_text_may_be_said() -> None:
    assert ConsumerOptions.from_kwargs({"security.protocol": "PLAINTEXT"}).security_protocol == "PLAINTEXT"


def test_a_codec_has_the_level_of_its_own_option() -> None:
    levels = {"compression.gzip.level": 7, "compression.lz4.level": 5, "compression.zstd.level": -3}
    for codec, level in (("none", None), ("gzip", 7), ("snappy", None), ("lz4", 5), ("zstd", -3)):
        assert ProducerOptions.from_kwargs({"compression.type": codec, **levels}).compression_level == level
