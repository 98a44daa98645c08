"""What the broker logs as its own mistake fails a run; what it logs of a disk that failed, and all else, does not."""

import logging
import threading
from collections.abc import Callable

import pytest

from mainstem.sim.complaints import listening
from mainstem.storage.errors import StorageError

BROKER = logging.getLogger("mainstem.broker.router")


def _log(error: Exception, logger: logging.Logger = BROKER, **about: str) -> None:
    try:
        raise error
    except Exception:
        logger.exception("failed to answer a request", extra=about)


def _heard(say: Callable[[], None], *, has_disk_failed: bool = False) -> list[str]:
    heard: list[str] = []
    with listening(heard.append, lambda: has_disk_failed):
        say()
    return heard


def test_an_error_that_nobody_foresaw_is_heard_with_where_it_was() -> None:
    [heard] = _heard(lambda: _log(KeyError("log-0"), api="Fetch"))
    assert heard.startswith("the broker logs: failed to answer a request api=Fetch: KeyError: 'log-0', in _log (")


def test_a_failure_of_the_disk_is_heard_only_where_no_disk_has_failed() -> None:
    error = StorageError("/data/log-0/0.log", "simulated")
    assert len(_heard(lambda: _log(error))) == 1
    assert _heard(lambda: _log(error), has_disk_failed=True) == []
    assert len(_heard(lambda: _log(KeyError(0)), has_disk_failed=True)) == 1


def test_what_is_foreseen_and_what_others_say_is_not_heard() -> None:
    assert _heard(lambda: BROKER.error("a log is offline: %s", "the disk")) == []
    assert _heard(lambda: _log(KeyError(0), logging.getLogger("application"))) == []

    def say_elsewhere() -> None:
        thread = threading.Thread(target=_log, args=(KeyError(0),))
        thread.start()
        thread.join()

    assert _heard(say_elsewhere) == []


def test_nothing_is_said_in_a_run_and_everything_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    try:
        _heard(lambda: _log(KeyError("in the run")))
        _log(KeyError("after it"))
    finally:
        logging.getLogger().removeHandler(handler)
    told = capsys.readouterr().err
    assert "in the run" not in told
    assert "after it" in told
