"""Offsets of many partitions, and the JSON that Spark's Kafka source has for them.

`{"orders": {"0": 23, "1": -2}}` names offsets, in options and in checkpoints alike; -2 is the earliest there is and -1
the latest. `{"orders": [0, 1]}` names partitions. A checkpoint that Spark's own source wrote reads the same way.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

EARLIEST: Final = -2
LATEST: Final = -1

Partition = tuple[str, int]
Offsets = dict[Partition, int]


def parse_offsets(text: str, option: str) -> Offsets:
    """ValueError, with one sentence, where it is not offsets as above."""
    parsed = _object(text, option)
    offsets: Offsets = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise _shape(option, text)
        for partition, offset in partitions.items():
            if not partition.isdigit() or isinstance(offset, bool) or not isinstance(offset, int):
                raise _shape(option, text)
            offsets[topic, int(partition)] = offset
    return offsets


def parse_partitions(text: str, option: str) -> list[Partition]:
    parsed = _object(text, option)
    found: set[Partition] = set()
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list) or not all(type(number) is int and number >= 0 for number in partitions):
            raise ValueError(f'{option}: must be JSON like {{"topicA": [0, 1], "topicB": [2]}}; it is {text}')
        found.update((topic, number) for number in partitions)
    if not found:
        raise ValueError(f"{option}: names no partition; it is {text}")
    return sorted(found)


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """What Spark gives back of `to_json`."""
    return {(topic, int(number)): offset for topic, numbers in value.items() for number, offset in numbers.items()}


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Sorted, so that equal offsets are equal text: Spark compares the text."""
    shaped: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        shaped.setdefault(topic, {})[str(partition)] = offset
    return shaped


def name(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def names(partitions: Iterable[Partition], most: int = 5) -> str:
    """The first few of them, for a sentence."""
    ordered = [name(partition) for partition in sorted(partitions)]
    more = f" and {len(ordered) - most} more" if len(ordered) > most else ""
    return ", ".join(ordered[:most]) + more


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise _shape(option, text) from error
    if not isinstance(parsed, dict):
        raise _shape(option, text)
    return parsed


def _shape(option: str, text: str) -> ValueError:
    return ValueError(f'{option}: must be JSON like {{"topicA": {{"0": 23, "1": -1}}}}; it is {text}')
