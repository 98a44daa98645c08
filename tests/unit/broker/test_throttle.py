"""`log.cleaner.io.max.bytes.per.second` bounds compaction on average."""

import pytest

from mainstem.broker.drivers.compaction import Throttle


def test_what_was_used_is_waited_for_and_pauses_earn_nothing() -> None:
    throttle = Throttle(1000.0)
    now = 50.0
    assert throttle.used(500, now) == pytest.approx(0.5)
    # Waits that were put off add up.
    assert throttle.used(500, now) == pytest.approx(1.0)
    now += 100
    assert throttle.used(2000, now) == pytest.approx(2.0)


def test_without_a_bound_nobody_waits() -> None:
    assert Throttle(1.7976931348623157e308).used(1 << 40, 0.0) < 1e-9
