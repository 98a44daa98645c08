"""The simulated disk keeps exactly what a real one would have to keep, and may lose the rest."""

import errno
from random import Random

import pytest

from mainstem.sim.changes import WHOLE, ZEROED, Torn, Write, every_survival, without_blocks
from mainstem.sim.disk import SimDisk
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.fs import File


def new_disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_directories("/data")
    return disk


def new_file(disk: SimDisk, path: str = "/data/a", content: bytes = b"", durable: bool = True) -> File:
    file = disk.open(path, create=True)
    if content:
        file.write_at(0, [content])
    if durable:
        file.sync()
        disk.sync_directory("/data")
    return file


def read(disk: SimDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read_at(0, file.size())


def test_reads_see_writes_at_once() -> None:
    disk = new_disk()
    file = new_file(disk, content=b"0123456789")
    file.write_at(4, [b"ab", memoryview(b"xcdx")[1:3], b"ef"])
    assert file.read_at(0, 100) == b"0123abcdef"
    assert file.read_at(10, 1) == b""
    file.write_at(12, [b"z"])
    assert file.read_at(8, 100) == b"ef\0\0z"
    file.truncate(3)
    file.truncate(5)
    assert file.read_cached(0, 100) == b"012\0\0"
    assert file.size() == disk.file_size("/data/a") == 5


def test_preallocated_zeros_take_no_memory() -> None:
    disk = new_disk()
    file = new_file(disk)
    file.truncate(10 << 30)
    file.sync()
    file.write_at(0, [b"abc"])
    assert file.size() == 10 << 30
    assert file.read_at(2, 4) == b"c\0\0\0"
    assert file.read_at((10 << 30) - 2, 100) == b"\0\0"


def test_synced_bytes_and_names_survive_power_loss_and_nothing_else_must() -> None:
    disk = new_disk()
    file = new_file(disk, content=b"synced")
    file.write_at(6, [b" and not"])
    new_file(disk, "/data/b", b"no name", durable=False).sync()
    disk.power_loss_keeping({})
    assert disk.list_directory("/data") == ["a"]
    assert read(disk, "/data/a") == b"synced"
    assert disk.unsynced() == []


def test_a_synced_file_without_a_synced_name_is_lost() -> None:
    disk = new_disk()
    new_file(disk, "/data/b", b"bytes", durable=False).sync()
    disk.power_loss_keeping({})
    assert disk.list_directory("/data") == []


def test_unsynced_writes_survive_in_any_combination() -> None:
    disk = new_disk()
    file = new_file(disk, content=b"....")
    file.write_at(0, [b"a"])
    file.write_at(2, [b"c"])
    file.write_at(6, [b"g"])
    found = set()
    for kept in every_survival(disk.unsynced()):
        image = disk.fork()
        image.power_loss_keeping(kept)
        found.add(read(image, "/data/a"))
    assert {b"....", b"a...", b"..c.", b"a.c.", b"....\0\0g", b"a...\0\0g", b"..c.\0\0g", b"a.c.\0\0g"} <= found


def test_a_write_tears_at_sectors() -> None:
    disk = new_disk()
    file = new_file(disk)
    file.write_at(500, [b"x" * 1000])
    (write,) = disk.unsynced()
    assert isinstance(write, Write)
    assert write.cuts() == [12, 524]
    assert write.cuts(4096) == []
    image = disk.fork()
    image.power_loss_keeping({0: Torn.at(12)})
    assert read(image, "/data/a") == bytes(500) + b"x" * 12
    image = disk.fork()
    image.power_loss_keeping({0: Torn([(524, 1000)])})
    assert read(image, "/data/a") == bytes(1024) + b"x" * 476


def test_a_power_loss_may_take_blocks_from_the_middle_of_a_file_and_leave_its_size() -> None:
    disk = new_disk()
    file = new_file(disk, content=b"o" * 100)
    for at in range(100, 3000, 100):
        file.write_at(at, [b"x" * 100])
    seen: set[int] = set()
    for seed in range(50):
        image = disk.fork()
        image.power_loss_keeping(without_blocks(image.unsynced(), Random(seed)))
        found = read(image, "/data/a")
        assert len(found) == 3000, "the size has come, and all that was synced"
        assert found.startswith(b"o" * 100)
        for start in range(0, 3000, 512):
            block = found[max(start, 100) : start + 512]
            assert block in (b"x" * len(block), bytes(len(block))), "of two writes to one block both are lost, or none"
            seen |= {start} if block[0] == 0 else set()
    assert seen == set(range(0, 3000, 512))


def test_a_rename_may_survive_without_the_data_behind_it() -> None:
    disk = new_disk()
    new_file(disk, "/data/a", b"old")
    new_file(disk, "/data/a.tmp", b"new", durable=False)
    disk.rename("/data/a.tmp", "/data/a")
    changes = disk.unsynced()
    assert [repr(change).split()[0] for change in changes] == ["create", "write", "rename"]
    outcomes = {}
    for name, kept in {"lost": {}, "empty": {2: WHOLE}, "zeroed": {1: ZEROED, 2: WHOLE}, "both": {0: WHOLE}}.items():
        image = disk.fork()
        image.power_loss_keeping(kept)
        outcomes[name] = {path: read(image, f"/data/{path}") for path in image.list_directory("/data")}
    assert outcomes == {
        "lost": {"a": b"old"},
        "empty": {"a": b""},
        "zeroed": {"a": b"\0\0\0"},
        "both": {"a": b"old", "a.tmp": b""},
    }


def test_a_lost_removal_brings_the_file_back() -> None:
    disk = new_disk()
    new_file(disk, content=b"abc")
    disk.remove("/data/a")
    assert not disk.exists("/data/a")
    disk.power_loss_keeping({})
    assert read(disk, "/data/a") == b"abc"
    disk.remove("/data/a")
    disk.sync_directory("/data")
    disk.power_loss_keeping({})
    assert not disk.exists("/data/a")


def test_a_directory_moves_with_what_is_in_it() -> None:
    disk = new_disk()
    disk.make_directory("/data/t-0")
    disk.open("/data/t-0/log", create=True).write_at(0, [b"x"])
    disk.sync_directory("/data/t-0")
    disk.rename("/data/t-0", "/data/t-0.u-delete")
    assert disk.list_directory("/data/t-0.u-delete") == ["log"]
    disk.sync_directory("/data")
    disk.power_loss_keeping({})
    assert read(disk, "/data/t-0.u-delete/log") == b""
    with pytest.raises(OSError, match="not empty"):
        disk.remove_directory("/data/t-0.u-delete")


def test_a_rename_between_directories_is_durable_when_either_is_synced() -> None:
    for synced in ("/data/x", "/data/y"):
        disk = new_disk()
        disk.make_directories("/data/x")
        disk.make_directories("/data/y")
        disk.open("/data/x/f", create=True)
        disk.rename("/data/x/f", "/data/y/g")
        disk.sync_directory(synced)
        disk.power_loss_keeping({})
        assert (disk.list_directory("/data/x"), disk.list_directory("/data/y")) == ([], ["g"])


def test_kill_keeps_the_cache_and_ends_handles_and_locks() -> None:
    disk = new_disk()
    file = new_file(disk, content=b"abc", durable=False)
    lock = disk.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")
    disk.kill()
    assert read(disk, "/data/a") == b"abc"
    for use in (lambda: file.read_at(0, 1), lambda: file.write_at(0, [b"x"]), file.sync, file.size):
        with pytest.raises(OSError, match="dead"):
            use()
    second = disk.lock("/data/.lock")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock("/data/.lock")
    second.release()
    disk.lock("/data/.lock")


def test_a_failed_sync_drops_what_it_should_have_kept_and_the_next_one_succeeds() -> None:
    disk = new_disk()
    file = new_file(disk, content=b"abc")
    file.write_at(3, [b"def"])
    disk.faults.append(Fault(Effect.FAIL_SYNC_AND_DROP))
    with pytest.raises(OSError, match="failed sync"):
        file.sync()
    file.sync()
    assert file.read_at(0, 10) == b"abcdef"
    file.write_at(6, [b"ghi"])
    file.sync()
    disk.power_loss_keeping({})
    assert read(disk, "/data/a") == b"abc\0\0\0ghi"
    assert disk.counts["fail_sync_and_drop"] == 1


def test_faults_strike_what_they_name_as_often_as_they_say() -> None:
    disk = new_disk()
    file = new_file(disk, content=b"abc")
    disk.faults = [Fault(Effect.FAIL, "write", "/data/a", errno.ENOSPC, skip=1, times=2)]
    file.write_at(0, [b"x"])
    for _ in range(2):
        with pytest.raises(OSError, match="failure of write") as raised:
            file.write_at(0, [b"y"])
        assert raised.value.errno == errno.ENOSPC
    file.write_at(1, [b"z"])
    assert file.read_at(0, 3) == b"xzc"
    disk.faults = [Fault(Effect.FAIL, path=lambda path: path.startswith("/data"), times=-1)]
    for use in (
        lambda: disk.open("/data/a"),
        lambda: disk.list_directory("/data"),
        lambda: file.read_at(0, 1),
        file.sync,
        lambda: disk.sync_directory("/data"),
    ):
        with pytest.raises(OSError, match="failure"):
            use()
    disk.list_directory("/")


def test_a_short_write_leaves_a_prefix_and_raises() -> None:
    disk = new_disk()
    file = new_file(disk)
    disk.faults = [Fault(Effect.SHORT_WRITE, error=errno.ENOSPC)]
    with pytest.raises(OSError, match="short write"):
        file.write_at(0, [b"0123456789" * 10])
    assert 0 < file.size() < 100
    assert (b"0123456789" * 10).startswith(read(disk, "/data/a"))


def test_a_split_write_is_two_writes() -> None:
    disk = new_disk()
    file = new_file(disk)
    disk.faults = [Fault(Effect.SPLIT_WRITE)]
    file.write_at(0, [b"0123456789" * 10])
    assert read(disk, "/data/a") == b"0123456789" * 10
    assert len(disk.unsynced()) == 2


def test_a_misdirected_write_lands_elsewhere_and_nobody_is_told() -> None:
    disk = new_disk()
    file = new_file(disk, content=bytes(4096))
    disk.faults = [Fault(Effect.MISDIRECT)]
    file.write_at(4000, [b"abc"])
    found = file.read_at(0, 8192)
    assert found.index(b"abc") % 512 == 0
    assert found[4000:4003] == bytes(3)
    file.write_at(4000, [b"abc"])
    assert file.read_at(4000, 3) == b"abc"


def test_a_slow_disk_is_slow_where_the_hook_says() -> None:
    now_ms = 0
    disk = SimDisk(Random(1), lambda: now_ms)
    disk.make_directories("/data")

    def slow(operation: str, path: str, position: int, size: int) -> None:
        nonlocal now_ms
        now_ms += 100 if operation == "sync" else 0

    disk.on_operation = slow
    file = disk.open("/data/a", create=True)
    file.sync()
    file.write_at(0, [b"x"])
    assert disk.modified_ms("/data/a") == 100


def test_reads_and_files_can_be_damaged() -> None:
    disk = new_disk()
    file = new_file(disk, content=bytes(100))
    disk.faults = [Fault(Effect.FLIP_BIT)]
    assert sum(byte.bit_count() for byte in file.read_at(0, 100)) == 1
    assert file.read_at(0, 100) == bytes(100)
    disk.flip_bit("/data/a", 8 * 10 + 3)
    disk.power_loss_keeping({})
    assert read(disk, "/data/a")[10] == 8
    disk.cut_file("/data/a", 7)
    disk.power_loss_keeping({})
    assert read(disk, "/data/a") == bytes(7)


def test_an_older_image_comes_back() -> None:
    disk = new_disk()
    file = new_file(disk, content=b"old", durable=False)
    image = disk.fork()
    file.write_at(0, [b"new"])
    file.sync()
    disk.remove("/data/a")
    disk.restore(image)
    assert read(disk, "/data/a") == b"old"
    disk.power_loss_keeping({})
    assert disk.list_directory("/data") == []
    assert read(image, "/data/a") == b"old"


def test_hooks_see_operations_and_changes() -> None:
    disk = new_disk()
    seen: list[str] = []
    changed: list[int] = []
    disk.on_operation = lambda operation, path, position, size: seen.append(f"{operation} {path} {position} {size}")
    disk.after_change = lambda same: changed.append(len(same.unsynced()))
    file = disk.open("/data/a", create=True)
    file.write_at(3, [b"ab"])
    file.sync()
    disk.sync_directory("/data")
    assert seen == ["open /data/a 0 0", "write /data/a 3 2", "sync /data/a 0 0", "sync_directory /data 0 0"]
    assert changed == [1, 2, 1, 0]


def test_cold_reads_are_declined_only_where_the_caller_asked_for_cached_ones() -> None:
    disk = new_disk()
    file = new_file(disk, content=b"abc")
    disk.is_cold = lambda path, position, size: position == 0
    assert file.read_cached(0, 1) is None
    assert file.read_cached(1, 1) == b"b"
    assert file.read_at(0, 1) == b"a"


def test_write_back_makes_changes_durable_without_a_sync() -> None:
    disk = new_disk()
    new_file(disk, content=b"abc", durable=False)
    disk.write_back(Random(1), share=1.0)
    disk.power_loss_keeping({})
    assert read(disk, "/data/a") == b"abc"


def busy(disk: SimDisk, rng: Random) -> None:
    names = ["a", "b", "c", "d"]
    for _ in range(40):
        path = f"/data/{rng.choice(names)}"
        match rng.randrange(7):
            case 0 | 1 | 2:
                disk.open(path, create=True).write_at(rng.randrange(2000), [rng.randbytes(rng.randrange(2000))])
            case 3:
                disk.open(path, create=True).truncate(rng.randrange(2000))
            case 4:
                disk.open(path, create=True).sync()
            case 5 if disk.exists(path):
                disk.rename(path, f"/data/{rng.choice(names)}")
            case 6 if disk.exists(path):
                disk.remove(path)
            case _:
                disk.sync_directory("/data")


def test_one_seed_is_one_run() -> None:
    def run(seed: int) -> list[dict[str, bytes | None]]:
        rng = Random(seed)
        disk = SimDisk(rng)
        disk.make_directories("/data")
        images = []
        for _ in range(5):
            busy(disk, rng)
            disk.power_loss()
            images.append(disk.contents())
        return images

    for seed in range(10):
        assert run(seed) == run(seed)
    assert run(1) != run(2)


def test_a_fork_crashes_like_its_original() -> None:
    for seed in range(30):
        disk = new_disk()
        busy(disk, Random(seed))
        image = disk.fork()
        assert image.contents() == disk.contents()
        assert image.fingerprint() == disk.fingerprint()
        disk.power_loss(Random(seed))
        image.power_loss(Random(seed))
        assert image.contents() == disk.contents()
        before = disk.contents()
        busy(image, Random(seed + 1))
        assert disk.contents() == before


def test_keeping_every_change_is_the_same_as_a_kill() -> None:
    for seed in range(30):
        disk = new_disk()
        busy(disk, Random(seed))
        seen = disk.contents()
        disk.power_loss_keeping(dict.fromkeys(range(len(disk.unsynced())), WHOLE))
        assert disk.contents() == seen
