"""The first failed write or sync ends all use of the log, and what it left behind recovers (D5, KAFKA-10778).

Each disk operation of a workload is made to fail, one at a time and in each way it can. From then on nothing is
written, nothing acknowledged, and no sync tried again: a second one would succeed over the pages that the first one
dropped. Whatever the disk holds then is opened again after kill -9 and after power loss.
"""

import errno
from random import Random

import pytest

from mainstem.protocol.builder import BatchBuilder
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.errors import StorageError
from tests.support.log_world import FOLDER, PARTITION, TOPIC, Operation, World, open_directories

OPERATIONS: list[Operation] = [
    ("append", 3, 250, 1),
    ("produce", 0, 1, 200),
    ("roll",),
    ("begin", 1, 1, 90),
    ("end", 1, 0),
    ("flush",),
    ("epoch",),
    ("high_watermark", 0),
    ("append", 2, 250, 1),
    ("truncate", 1),
    ("append", 1, 60, 1),
    ("high_watermark", 1),
    ("delete_records", 5),
    ("roll",),
    ("produce", 0, 1, 100),
    ("retention", 1),
    ("flush",),
]
CHANGING = ("open", "write", "truncate", "sync", "rename", "remove", "sync_directory")
FAULTS = [
    (Effect.FAIL, "open", errno.EIO),
    (Effect.FAIL, "write", errno.EIO),
    (Effect.FAIL, "write", errno.ENOSPC),
    (Effect.SHORT_WRITE, "write", errno.ENOSPC),
    (Effect.FAIL, "truncate", errno.EIO),
    (Effect.FAIL, "rename", errno.EIO),
    (Effect.FAIL, "remove", errno.EIO),
    (Effect.FAIL_SYNC_AND_DROP, "sync", errno.EIO),
    (Effect.FAIL_SYNC_AND_DROP, "sync_directory", errno.EIO),
]


def count_operations() -> dict[str, int]:
    """How often the workload does each kind of operation in the log's folder."""
    world = World()
    counts: dict[str, int] = dict.fromkeys(CHANGING, 0)

    def see(operation: str, path: str, position: int, size: int) -> None:
        if path.startswith(FOLDER) and operation in counts:
            counts[operation] += 1

    world.disk.on_operation = see
    world.run(OPERATIONS)
    return counts


def check_nothing_happens_any_more(world: World) -> None:
    log = world.log
    end, recovery_point = log.log_end, log.recovery_point
    touched: list[tuple[str, str]] = []
    world.disk.on_operation = lambda operation, path, position, size: touched.append((operation, path))
    batch = BatchBuilder()
    batch.append(world.now_ms, None, b"late")
    data = batch.build()
    for use in (
        lambda: log.append_as_leader(data, 0, len(data), world.leader_epoch, world.now_ms),
        lambda: log.flush(world.now_ms),
        lambda: log.roll(world.now_ms),
        lambda: log.truncate_to(0, world.now_ms),
        lambda: log.delete_old_segments(world.now_ms),
        log.persist_epochs,
    ):
        with pytest.raises(StorageError):
            use()
    assert log.failure is not None
    assert (log.log_end, log.recovery_point) == (end, recovery_point)
    assert not [each for each in touched if each[1].startswith(FOLDER) and each[0] in CHANGING]
    log.close(world.now_ms)
    assert not [each for each in touched if each[1].startswith(FOLDER) and each[0] in ("write", "sync", "rename")]
    world.disk.on_operation = None


def check_it_recovers(world: World) -> None:
    world.disk.faults.clear()
    for seed in range(8):
        disk: SimDisk = world.disk.fork()
        if seed == 0:
            disk.kill()
        else:
            disk.power_loss(Random(seed))
        log = open_directories(disk, world.config, world.now_ms).logs[TOPIC, PARTITION]
        world.expected.check(disk, log)


@pytest.mark.parametrize(("effect", "operation", "error"), FAULTS, ids=lambda value: getattr(value, "value", value))
def test_after_the_first_failure_nothing_is_written_and_the_rest_recovers(
    effect: Effect, operation: str, error: int
) -> None:
    struck = 0
    for skip in range(count_operations()[operation]):
        world = World()
        world.disk.faults.append(Fault(effect, operation, FOLDER, error, skip=skip))
        try:
            world.run(OPERATIONS)
        except StorageError:
            struck += 1
            check_nothing_happens_any_more(world)
            check_it_recovers(world)
    assert struck > 0
