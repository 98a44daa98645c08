import logging

from mainstem.broker.logfmt import LogfmtFormatter, if_unforeseen, quoted
from mainstem.protocol.errors import ErrorCode, RemoteError
from mainstem.storage.errors import StorageError


def test_a_line_says_what_happened_to_whom_and_parses_as_logfmt() -> None:
    record = logging.makeLogRecord(
        {
            "msg": 'created "x"\ntopic',
            "levelname": "INFO",
            "created": 0.25,
            "msecs": 250.0,
            "topic": "orders",
            "note": "a b",
        }
    )
    assert LogfmtFormatter().format(record) == (
        'at=1970-01-01T00:00:00.250Z level=info topic=orders note="a b" msg="created \\"x\\"\\ntopic"'
    )


def test_what_a_client_says_of_itself_neither_breaks_a_line_nor_moves_a_cursor() -> None:
    assert quoted("a\x1b[2J\x00\u2028\r\n\u00e9 ") == '"a\\x1b[2J\\x00\\u2028\\r\\n\u00e9 "'


def test_a_traceback_is_shown_of_what_nobody_foresaw_alone() -> None:
    unforeseen = KeyError("log-0")
    assert if_unforeseen(unforeseen) is unforeseen
    for error in (None, OSError("full"), StorageError("0.log", "full"), RemoteError(ErrorCode.REQUEST_TIMED_OUT, "")):
        assert if_unforeseen(error) is None
