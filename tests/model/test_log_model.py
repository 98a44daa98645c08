"""Random operations on a log, beside a model of what it must hold: they agree after every one, and after every crash.

`log_world` has the operations and the model. What once went wrong stands below by name, shrunk to the operations that
matter.
"""

import pytest

from tests.support.log_world import Operation, World, random_operations, shrink

SMOKE_SEEDS = 60
CAMPAIGN_SEEDS = 4000
OPERATIONS = 120


def failure_of(operations: list[Operation]) -> BaseException | None:
    try:
        World().run(operations)
    except Exception as error:
        return error
    return None


def run_seeds(seeds: range, count: int) -> dict[str, int]:
    """Runs each seed; the first that fails is shrunk and shown. How often each operation was done."""
    done: dict[str, int] = {}
    for seed in seeds:
        operations = random_operations(seed, count)
        error = failure_of(operations)
        if error is not None:
            shrunk = shrink(operations, lambda shorter: failure_of(shorter) is not None)
            pytest.fail(f"seed {seed}: {failure_of(shrunk)!r} after\n    {shrunk}")
        for operation in operations:
            done[str(operation[0])] = done.get(str(operation[0]), 0) + 1
    return done


def test_the_log_agrees_with_the_model() -> None:
    done = run_seeds(range(SMOKE_SEEDS), OPERATIONS)
    assert not [name for name in dir(World) if name.startswith("do_") and name[3:] not in done]


@pytest.mark.campaign
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(4))
def test_the_log_agrees_with_the_model_for_minutes(part: int) -> None:
    first = 1_000_000 + part * CAMPAIGN_SEEDS
    run_seeds(range(first, first + CAMPAIGN_SEEDS), OPERATIONS)
    run_seeds(range(first, first + CAMPAIGN_SEEDS // 20), OPERATIONS * 10)


ONCE_WRONG: dict[str, list[Operation]] = {
    "a clean stop after kill -9 syncs the snapshots that the dead process wrote": [
        ("produce", 2, 0, 133),
        ("time", 43216),
        ("append", 0, 81, 1),
        ("flush",),
        ("retention", 26172),
        ("clean_restart",),
        ("produce", 0, 0, 282),
        ("truncate", 873),
        ("produce", 1, 0, 141),
        ("roll",),
        ("kill",),
        ("clean_restart",),
        ("power_loss", 455654),
        ("clean_restart",),
    ],
    "a flush after kill -9 syncs what the dead process wrote": [
        ("append", 0, 53, 23),
        ("kill",),
        ("flush",),
        ("power_loss", 563080),
    ],
    "a clean stop after kill -9 syncs what the dead process wrote": [
        ("begin", 1, 2, 204),
        ("produce", 0, 1, 265),
        ("append", 3, 27, 316),
        ("append", 3, 285, 859),
        ("kill",),
        ("clean_restart",),
        ("begin", 0, 2, 134),
        ("power_loss", 531259),
    ],
    "truncated batches do not return beside a newer segment": [
        ("append", 1, 106, 49),
        ("append", 1, 110, 384),
        ("produce", 1, 3, 37),
        ("end", 1, 1),
        ("clean_restart",),
        ("end", 1, 0),
        ("truncate", 615),
        ("roll",),
        ("power_loss", 972651),
    ],
    "truncated batches do not return beside a newer epoch": [
        ("end", 1, 1),
        ("flush",),
        ("append", 1, 295, 708),
        ("end", 0, 1),
        ("produce", 1, 1, 178),
        ("produce", 1, 2, 7),
        ("append", 1, 167, 658),
        ("append", 3, 173, 661),
        ("append", 0, 178, 758),
        ("begin", 0, 2, 226),
        ("end", 1, 1),
        ("truncate", 176),
        ("flush_rolled",),
        ("power_loss", 973751),
    ],
    "a truncation cuts the indexes durably": [
        ("produce", 1, 2, 190),
        ("produce", 0, 3, 93),
        ("power_loss", 452735),
        ("append", 2, 250, 898),
        ("power_loss", 763249),
        ("end", 0, 1),
        ("produce", 0, 1, 216),
        ("clean_restart",),
        ("produce", 1, 1, 275),
        ("begin", 2, 0, 278),
        ("produce", 1, 3, 129),
        ("end", 0, 1),
        ("end", 0, 0),
        ("produce", 2, 2, 108),
        ("truncate", 791),
        ("produce", 0, 2, 269),
        ("power_loss", 911935),
    ],
    "moving the log start makes nothing durable": [
        ("end", 2, 0),
        ("high_watermark", 636),
        ("delete_records", 573),
        ("checkpoint", 0),
        ("power_loss", 276863),
    ],
    "a clean stop syncs segments that the log start has passed": [
        ("produce", 1, 0, 25),
        ("append", 0, 283, 792),
        ("produce", 0, 3, 278),
        ("end", 1, 0),
        ("append", 0, 296, 665),
        ("append", 2, 220, 907),
        ("high_watermark", 509),
        ("append", 2, 277, 122),
        ("delete_records", 316),
        ("clean_restart",),
        ("power_loss", 776589),
    ],
    "retention never leaves a hole that recovery would cut at": [
        ("end", 1, 0),
        ("roll",),
        ("produce", 1, 1, 243),
        ("produce", 1, 2, 54),
        ("produce", 0, 1, 256),
        ("end", 1, 0),
        ("begin", 1, 3, 184),
        ("end", 0, 0),
        ("power_loss", 849409),
        ("end", 1, 0),
        ("remove_files", 2951),
        ("produce", 0, 3, 68),
        ("produce", 2, 1, 152),
        ("retention", 31343),
        ("produce", 0, 0, 272),
        ("time", 19662),
        ("high_watermark", 574),
        ("roll",),
        ("retention", 46856),
        ("power_loss", 367098),
    ],
    "retention never leaves a hole in the log": [
        ("produce", 0, 1, 285),
        ("append", 0, 158, 292),
        ("append", 2, 58, 130),
        ("append", 3, 152, 178),
        ("append", 0, 66, 577),
        ("produce", 2, 3, 146),
        ("roll",),
        ("retention", 34268),
        ("begin", 0, 1, 134),
        ("append", 3, 159, 404),
        ("clean_restart",),
        ("power_loss", 628522),
        ("high_watermark", 343),
        ("high_watermark", 10),
        ("append", 1, 92, 922),
        ("retention", 82131),
        ("power_loss", 427086),
    ],
    "the last time index entry of a segment rolled right after a flush is not lost": [
        ("begin", 2, 2, 34),
        ("produce", 1, 3, 254),
        ("append", 1, 169, 384),
        ("retention", 149167),
        ("produce", 2, 0, 202),
        ("clean_restart",),
        ("begin", 0, 0, 292),
        ("truncate", 433),
        ("append", 0, 21, 901),
        ("power_loss", 140904),
        ("clean_restart",),
    ],
}


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_what_was_once_wrong(name: str) -> None:
    World().run(ONCE_WRONG[name])
