from mainstem.cli.perf import _values, percentiles


def test_percentiles_are_by_nearest_rank() -> None:
    found = percentiles([float(number) for number in range(1, 1001)])
    assert (found["min"], found["p50"], found["p90"], found["p99"], found["p99.9"], found["max"]) == (
        1,
        500,
        900,
        990,
        999,
        1000,
    )
    assert found["mean"] == 500.5
    assert percentiles([3.0]) == {"min": 3, "p50": 3, "p90": 3, "p95": 3, "p99": 3, "p99.9": 3, "max": 3, "mean": 3}


def test_values_have_the_size_that_was_asked_for() -> None:
    for size in (0, 1, 100, 2_000_000):
        values = _values(size)
        assert values
        assert {len(value) for value in values} == {size}
    assert len(set(_values(100))) > 10
