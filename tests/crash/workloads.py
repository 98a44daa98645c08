"""What power is lost in the middle of: short lists of operations, each around one thing that can go wrong.

Sizes are chosen so that a batch spans several sectors and a segment holds a few batches; see `log_world`.
"""

from dataclasses import replace

from tests.crash.enumeration import Workload
from tests.support.log_world import CONFIG, Operation

ROOMY = replace(CONFIG, internal_segment_bytes=100_000, retention_bytes=-1)
TIGHT = replace(CONFIG, internal_segment_bytes=700, retention_bytes=1000)

SOME: list[Operation] = [("append", 1, 100, 1), ("produce", 0, 2, 100), ("high_watermark", 0), ("flush",)]
SEGMENTS: list[Operation] = [
    ("append", 1, 200, 1),
    ("append", 2, 150, 1),
    ("roll",),
    ("produce", 1, 2, 150),
    ("roll",),
    ("produce", 0, 1, 250),
    ("high_watermark", 3),
    ("high_watermark", 2),
    ("high_watermark", 1),
    ("high_watermark", 0),
    ("flush",),
    ("checkpoint", 0),
    ("checkpoint", 1),
]

WORKLOADS = [
    Workload("the first batches", [], [("append", 3, 290, 1), ("append", 0, 20, 1), ("flush",), ("append", 1, 90, 1)]),
    Workload(
        "appends",
        SOME,
        [("append", 3, 250, 1), ("produce", 0, 1, 200), ("append", 0, 10, 1), ("append", 3, 299, 1)],
        ROOMY,
    ),
    Workload(
        "appends and flushes",
        SOME,
        [("append", 3, 250, 1), ("flush",), ("append", 1, 30, 1), ("checkpoint", 0), ("append", 2, 200, 1)],
    ),
    Workload(
        "a roll",
        SOME,
        [
            ("append", 2, 200, 1),
            ("roll",),
            ("append", 1, 150, 1),
            ("flush_rolled",),
            ("checkpoint", 0),
            ("append", 0, 40, 1),
        ],
    ),
    Workload(
        "a roll after a flush",
        SOME,
        [("flush",), ("checkpoint", 0), ("roll",), ("append", 1, 150, 1), ("append", 0, 40, 1)],
    ),
    # The flush alone makes the new segment's name durable: neither a snapshot's nor an epoch's sync does it before.
    Workload("a roll, then a flush", SOME, [("roll",), ("append", 1, 150, 1), ("flush",), ("append", 0, 40, 1)]),
    Workload(
        "two rolls", SOME, [("append", 3, 200, 1), ("roll",), ("produce", 1, 3, 100), ("roll",), ("produce", 0, 1, 60)]
    ),
    Workload(
        "rolls by size", SOME, [("append", 1, 200, 1), ("append", 1, 200, 1), ("append", 1, 200, 1), ("flush",)], TIGHT
    ),
    Workload(
        "a truncation",
        SEGMENTS,
        [("append", 1, 100, 1), ("truncate", 3), ("append", 1, 100, 1), ("flush",), ("append", 0, 9, 1)],
    ),
    Workload(
        "a truncation over segments",
        SEGMENTS,
        [("append", 0, 100, 1), ("truncate", 1), ("append", 2, 100, 1), ("roll",), ("append", 0, 50, 1)],
    ),
    Workload(
        "a truncation of unsynced batches",
        SOME,
        [("append", 1, 100, 1), ("append", 1, 100, 1), ("truncate", 2), ("append", 1, 100, 1), ("append", 1, 100, 1)],
        ROOMY,
    ),
    Workload(
        "retention",
        SEGMENTS,
        [("append", 0, 40, 1), ("high_watermark", 0), ("retention", 150_000), ("append", 0, 30, 1), ("flush",)],
    ),
    Workload(
        "retention while others write",
        SEGMENTS,
        [("append", 0, 40, 1), ("high_watermark", 0), ("slow_retention", 150_000, 1, 60), ("append", 0, 30, 1)],
    ),
    Workload(
        "retention of everything while others write",
        SOME,
        [("slow_retention", 150_000, 1, 60), ("append", 0, 30, 1)],
    ),
    Workload(
        "retention and removal",
        SEGMENTS,
        [("retention", 150_000), ("remove_files", 5000), ("append", 0, 30, 1), ("flush",), ("checkpoint", 2)],
    ),
    Workload(
        "the log start",
        SEGMENTS,
        [
            ("delete_records", 3),
            ("checkpoint", 2),
            ("delete_records", 4),
            ("append", 0, 30, 1),
            ("flush",),
            ("checkpoint", 0),
        ],
    ),
    Workload(
        "the log start over unsynced batches",
        SOME,
        [
            ("append", 2, 90, 1),
            ("high_watermark", 0),
            ("delete_records", 6),
            ("checkpoint", 0),
            ("checkpoint", 2),
            ("append", 0, 30, 1),
        ],
    ),
    Workload(
        "the log start and its segments",
        SEGMENTS,
        [("delete_records", 7), ("retention", 1), ("checkpoint", 2), ("remove_files", 5000), ("append", 1, 30, 1)],
    ),
    Workload(
        "transactions",
        SOME,
        [("begin", 1, 1, 120), ("begin", 2, 0, 90), ("end", 1, 0), ("roll",), ("end", 2, 1), ("begin", 1, 0, 30)],
    ),
    Workload(
        "a clean stop",
        SEGMENTS,
        [("append", 1, 150, 1), ("produce", 2, 0, 60), ("clean_restart",), ("append", 0, 30, 1)],
    ),
    Workload(
        "a kill, then a clean stop", SOME, [("append", 2, 150, 1), ("kill",), ("append", 0, 50, 1), ("clean_restart",)]
    ),
    Workload(
        "a kill, then a flush",
        SOME,
        [("append", 2, 150, 1), ("roll",), ("append", 0, 50, 1), ("kill",), ("flush",), ("checkpoint", 0)],
    ),
    # The second checkpoint forgets the log start, because the first segment that is left begins there.
    Workload(
        "a log start between segments, then a kill",
        SEGMENTS,
        [("delete_records", 5), ("checkpoint", 2), ("kill",), ("checkpoint", 2), ("append", 1, 30, 1), ("flush",)],
    ),
    Workload(
        "a kill, then a roll",
        SOME,
        [("begin", 1, 0, 90), ("end", 1, 0), ("kill",), ("roll",), ("append", 0, 50, 1), ("kill",)],
    ),
    Workload(
        "a new epoch",
        SOME,
        [("epoch",), ("append", 1, 90, 1), ("epoch",), ("epoch",), ("append", 0, 30, 1), ("flush",)],
    ),
    Workload(
        "power lost before",
        [*SOME, ("append", 3, 200, 1), ("append", 0, 20, 1), ("power_loss", 7)],
        [("append", 1, 90, 1), ("flush",), ("append", 0, 30, 1)],
    ),
]
