import logging

from mainstem.broker.logfmt import LogfmtFormatter


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
