"""Options: Spark's names and defaults, and one clear sentence for what is wrong."""

import pytest

from mainstem.spark import cores
from mainstem.spark.options import Kind, sink_options, source_options
from mainstem.spark.splits import PACK_BYTES, SPLIT_BYTES

HERE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def test_a_batch_reads_from_earliest_to_latest_and_a_stream_from_latest() -> None:
    read = source_options({**HERE, "subscribe": "orders"}, streaming=False)
    stream = source_options({**HERE, "subscribe": "orders"}, streaming=True)
    assert (read.starting.kind, read.ending.kind) == (Kind.EARLIEST, Kind.LATEST)
    assert stream.starting.kind is Kind.LATEST
    assert read.fail_on_data_loss
    assert not read.include_headers
    assert read.fetch_retries == 3
    assert read.max_trigger_delay_ms == 15 * 60_000


def test_names_are_taken_in_any_case() -> None:
    found = source_options({**HERE, "SubScribe": "a, b", "INCLUDEHEADERS": "True"}, streaming=False)
    assert found.topics.names == ("a", "b")
    assert found.include_headers


def test_a_timestamp_for_all_comes_before_timestamps_and_those_before_offsets() -> None:
    given = {
        **HERE,
        "subscribe": "a",
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a": {"0": 5}}',
    }
    assert source_options(given, streaming=False).starting.kind is Kind.TIMESTAMPS
    both = source_options({**given, "startingTimestamp": "7"}, streaming=False).starting
    assert (both.kind, both.timestamp_ms) == (Kind.TIMESTAMP, 7)


def test_a_stream_does_not_cut_partitions_unless_it_is_told_to() -> None:
    assert source_options({**HERE, "subscribe": "a"}, streaming=True).split_bytes is None
    assert source_options({**HERE, "subscribe": "a", "splitBytes": "5"}, streaming=True).split_bytes == 5


def test_a_batch_is_cut_for_every_core_unless_it_is_told_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cores.VARIABLE, "4")

    def split_bytes(total: int, **given: str) -> int:
        return source_options({**HERE, "subscribe": "a", **given}, streaming=False).batch_split_bytes(total)

    assert split_bytes(100 << 20) == 25 << 20
    assert split_bytes(10 << 20) == PACK_BYTES
    assert split_bytes(10 << 30) == SPLIT_BYTES
    assert split_bytes(100 << 20, minPartitions="2") == SPLIT_BYTES
    assert split_bytes(100 << 20, splitBytes="7") == 7
    monkeypatch.setenv(cores.VARIABLE, "many")
    with pytest.raises(ValueError, match="MAINSTEM_SPARK_CORES: must be a whole number, at least 1; it is many"):
        split_bytes(100 << 20)


@pytest.mark.parametrize("given", ["/data/log", "file:/data/log", "file:///data/log"])
def test_a_folder_may_be_named_as_for_sparks_own_sources(given: str) -> None:
    assert source_options({"path": given}, streaming=False).path == "/data/log"


def test_the_group_is_for_progress_and_not_for_the_client() -> None:
    found = source_options({**HERE, "subscribe": "a", "kafka.group.id": "g"}, streaming=True)
    assert found.group_id == "g"
    assert found.kafka.group_id is None


def test_a_job_moves_with_options_that_only_kafkas_own_clients_have() -> None:
    given = {**HERE, "kafka.metric.reporters": "a.B", "kafka.client.dns.lookup": "use_all_dns_ips"}
    assert source_options({**given, "subscribe": "a", "kafka.fetch.min.bytes": "7"}, streaming=True).kafka == (
        source_options({**HERE, "subscribe": "a", "kafka.fetch.min.bytes": "7"}, streaming=True).kafka
    )
    assert sink_options({**given, "kafka.partitioner.class": "c.D"}).kafka == sink_options(HERE).kafka


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto.include.jmx.reporter", "false"),
        ("group.instance.id", "one"),
        ("group.protocol", "CONSUMER"),
        ("share.acquire.mode", "record_limit"),
    ],
)
@pytest.mark.parametrize("group", [{}, {"kafka.group.id": "g"}], ids=["no group", "a group"])
def test_a_job_moves_with_options_of_kafkas_clients_of_whatever_version(
    name: str, value: str, group: dict[str, str]
) -> None:
    given = {**HERE, **group, "subscribe": "a"}
    assert source_options({**given, f"kafka.{name}": value}, streaming=True) == source_options(given, streaming=True)
    assert sink_options({**HERE, f"kafka.{name}": value}) == sink_options(HERE)


def test_a_job_moves_that_has_one_set_of_options_for_what_it_reads_and_what_it_writes() -> None:
    reading = {"kafka.group.id": "g", "kafka.isolation.level": "read_committed", "kafka.auto.offset.reset": "none"}
    writing = {"kafka.acks": "all", "kafka.transactional.id": "t", "kafka.key.serializer": "a.B"}
    read = {**HERE, "subscribe": "a"}
    assert source_options({**read, **writing}, streaming=False) == source_options(read, streaming=False)
    assert sink_options({**HERE, **reading}) == sink_options(HERE)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("interceptor.classes", "classes of Java do not run here"),
        ("key.serializer", "keys are bytes or strings"),
        ("value.serializer", "values are bytes or strings"),
        ("transactional.id", "say sinkId"),
        ("transaction.two.phase.commit.enable", "say twoPhaseCommit instead"),
    ],
)
def test_what_the_sink_cannot_be_given_is_told_with_the_way_out(name: str, instead: str) -> None:
    with pytest.raises(ValueError, match=f"kafka.{name}: cannot be given; .*{instead}"):
        sink_options({**HERE, f"kafka.{name}": "x"})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscribe": "a"}, "kafka.bootstrap.servers: say where the brokers are"),
        (HERE, "subscribe: say which topics to read"),
        ({**HERE, "subscribe": "a", "assign": "{}"}, "subscribe and assign: only one of"),
        ({**HERE, "subscribe": " "}, "subscribe: it is empty"),
        ({**HERE, "subscribePattern": "("}, r"subscribePattern: \( is no regular expression"),
        ({**HERE, "assign": '{"a": [true]}'}, "assign: must be JSON like"),
        ({**HERE, "subscribe": "a", "startingOffsets": "newest"}, "startingOffsets: must be earliest, latest or JSON"),
        ({**HERE, "subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets: an offset is 0 or more"),
        ({**HERE, "subscribe": "a", "startingOffsets": '{"a": 1}'}, "startingOffsets: must be JSON like"),
        ({**HERE, "subscribe": "a", "startingOffsets": "latest"}, "startingOffsets: latest .* leaves nothing to read"),
        ({**HERE, "subscribe": "a", "endingOffsets": '{"a": {"0": -2}}'}, "endingOffsets: earliest .* leaves nothing"),
        (
            {**HERE, "subscribe": "a", "startingOffsets": '{"a": {"0": 3}}', "endingOffsets": '{"a": {"0": 1}}'},
            "startingOffsets: a-0 starts at 3, after endingOffsets, 1",
        ),
        ({**HERE, "subscribe": "a", "includeHeaders": "yes"}, "includeHeaders: must be true or false; it is yes"),
        ({**HERE, "subscribe": "a", "minPartitions": "0"}, "minPartitions: must be a whole number, at least 1"),
        (
            {**HERE, "subscribe": "a", "minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"},
            "minOffsetsPerTrigger: 2 is more than maxOffsetsPerTrigger allows, which is 1",
        ),
        ({**HERE, "subscribe": "a", "maxTriggerDelay": "soon"}, "maxTriggerDelay: must be a duration"),
        ({**HERE, "subscribe": "a", "valueFormat": "xml"}, "valueFormat: must be json or string; it is xml"),
        ({**HERE, "subscribe": "a", "kafka.auto.offset.reset": "x"}, "kafka.auto.offset.reset: cannot be given"),
        ({**HERE, "subscribe": "a", "kafka.isolation.levl": "x"}, "did you mean 'isolation_level'"),
        (
            {**HERE, "subscribe": "a", "startingOffsetsByTimestampStrategy": "x"},
            "startingOffsetsByTimestampStrategy: must be error or latest",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_that_names_the_option(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        source_options(given, streaming=False)


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ("250us", 0.25),
        ("100ms", 100),
        ("100", 100),
        ("50s", 50_000),
        ("15m", 900_000),
        ("15min", 900_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("2 minutes", 120_000),
        ("3 milliseconds", 3),
    ],
)
def test_a_delay_may_have_every_unit_that_spark_knows(given: str, milliseconds: float) -> None:
    found = source_options({**HERE, "subscribe": "a", "maxTriggerDelay": given}, streaming=True)
    assert found.max_trigger_delay_ms == pytest.approx(milliseconds)


def test_a_stream_takes_an_ending_timestamp_and_goes_on_as_sparks_own_does(caplog: pytest.LogCaptureFixture) -> None:
    found = source_options({**HERE, "subscribe": "a", "endingTimestamp": "5"}, streaming=True)
    assert found == source_options({**HERE, "subscribe": "a"}, streaming=True)
    assert "endingTimestamp: a stream has no end" in caplog.text


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: a stream has no end"):
        source_options({**HERE, "subscribe": "a", name: "latest"}, streaming=True)


def test_a_sink_is_exactly_once_unless_it_is_told_otherwise() -> None:
    assert sink_options(HERE).exactly_once
    assert not sink_options({**HERE, "guarantee": "at_least_once"}).exactly_once
    assert not sink_options(HERE).two_phase
    with pytest.raises(ValueError, match="twoPhaseCommit: is for guarantee exactly_once"):
        sink_options({**HERE, "guarantee": "at_least_once", "twoPhaseCommit": "true"})
    with pytest.raises(ValueError, match="guarantee: must be"):
        sink_options({**HERE, "guarantee": "maybe"})
    with pytest.raises(ValueError, match="txnAppId and txnVersion: give both"):
        sink_options({**HERE, "txnAppId": "job"})
    with pytest.raises(ValueError, match=r"kafka\.transactional\.id: cannot be given"):
        sink_options({**HERE, "kafka.transactional.id": "mine"})


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("given", ["true", "false", "False"])
def test_a_job_moves_whatever_it_says_of_idempotence(
    given: str, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`true` is what the sink does, and more than `false` asks for."""
    found = sink_options({**HERE, "guarantee": guarantee, "kafka.enable.idempotence": given})
    assert found.exactly_once == (guarantee == "exactly_once")
    assert ("the option does nothing" in caplog.text) == (given != "true")


def test_what_kafka_does_not_take_beside_idempotence_is_not_taken_here() -> None:
    with pytest.raises(ValueError, match="it must be 'all' while enable_idempotence is True"):
        sink_options({**HERE, "kafka.enable.idempotence": "true", "kafka.acks": "1"})
    with pytest.raises(ValueError, match="enable_idempotence is 'maybe'"):
        sink_options({**HERE, "kafka.enable.idempotence": "maybe"})


SECRETS = {"kafka.ssl.truststore.location": "/a", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "secret"}


@pytest.mark.parametrize(
    "protocol", [{}, {"kafka.security.protocol": "PLAINTEXT"}, {"kafka.security.protocol": "plaintext"}]
)
def test_what_is_said_of_tls_and_sasl_does_nothing_in_plain_text(
    protocol: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    given = {**HERE, **SECRETS, **protocol}
    assert sink_options(given) == sink_options(HERE)
    assert len(caplog.records) == 1
    assert "kafka.sasl.jaas.config, kafka.sasl.mechanism, kafka.ssl.truststore.location: connections are" in caplog.text
    assert "secret" not in caplog.text
    read = {**given, "subscribe": "a"}
    assert source_options(read, streaming=True) == source_options({**HERE, "subscribe": "a"}, streaming=True)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("others", [{}, SECRETS], ids=["alone", "with its options"])
def test_a_connection_that_is_not_in_plain_text_is_refused(protocol: str, others: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="in plain text only: TLS and SASL are not there yet"):
        sink_options({**HERE, **others, "kafka.security.protocol": protocol})


@pytest.mark.parametrize("topic", ["", "  "])
def test_a_topic_without_a_name_is_no_place_to_write_to(topic: str) -> None:
    with pytest.raises(ValueError, match="topic: it is empty; name the topic to write to"):
        sink_options({**HERE, "topic": topic})
