"""Options: Spark's names and defaults, and one clear sentence for what is wrong."""

import pytest

from mainstem.spark.options import Kind, sink_options, source_options

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
    assert source_options({**HERE, "subscribe": "a"}, streaming=False).split_bytes is not None


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
