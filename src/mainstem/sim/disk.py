"""A disk in memory that forgets, tears, reorders and fails the way real ones do.

It implements `storage.fs` for crash tests and for the simulator. One disk belongs to one machine. Rules:

- What a process sees (the cache) and what survives power loss (the durable state) are kept apart, for the bytes of a
  file, for its size, and for the names in a directory. Nothing moves from one to the other except by `File.sync`,
  by `sync_directory`, by `write_back` (the kernel's own flushing) and by the crash itself.
- Every change that is not yet durable is a `Change`, in the order it was made. Power loss keeps a subset of them and
  applies it in order: a missing earlier one is a reordering, a cut one a torn write, a rename kept without the data
  behind it is the file of zeros that some file systems leave (S3 to S8 of the fault list).
- `kill` (kill -9) loses nothing but the open handles and the locks: the cache belongs to the kernel.
- Everything random comes from the `random.Random` given.

Bytes are copied once per write, never per file: a crash copies only what had unsynced changes. A file's zeros behind
its last written byte take no memory, because index files are preallocated with megabytes of them. Everything a broker
does ends here, so this is compiled where the hot modules are.
"""

import errno
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from mypy_extensions import i64

from mainstem.sim.changes import (
    SECTOR,
    WHOLE,
    Change,
    DirectoryNode,
    FileNode,
    Kept,
    Link,
    Node,
    Rename,
    Truncate,
    Unlink,
    Write,
    moved,
    random_survivors,
)
from mainstem.sim.faults import Effect, Fault
from mainstem.storage.fs import File, FileSystem, Lock


class SimFile(File):
    def __init__(self, disk: "SimDisk", path: str, node: FileNode) -> None:
        self.path = path
        self._disk = disk
        self._node = node
        self._life = disk.life
        self._open = True

    def _check(self, operation: str, position: i64, size: i64) -> Fault | None:
        if not self._open or self._life != self._disk.life:
            raise OSError(errno.EBADF, "the file is closed, or its process is dead", self.path)
        return self._disk.begin(operation, self.path, position, size)

    def read_at(self, position: i64, size: i64) -> bytes:
        fault = self._check("read", position, size)
        found = self._node.cached.read(position, size)
        if fault is not None and fault.effect is Effect.FLIP_BIT and found:
            bit = self._disk.rng.randrange(len(found) * 8)
            flipped = bytearray(found)
            flipped[bit >> 3] ^= 1 << (bit & 7)
            return bytes(flipped)
        return found

    def read_cached(self, position: i64, size: i64) -> bytes | None:
        if self._disk.is_cold is not None and self._disk.is_cold(self.path, position, size):
            return None
        return self.read_at(position, size)

    def write_at(self, position: i64, buffers: Sequence[bytes | memoryview]) -> None:
        data = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
        fault = self._check("write", position, len(data))
        disk, node = self._disk, self._node
        if fault is not None:
            match fault.effect:
                case Effect.SHORT_WRITE:
                    disk.write(node, position, data[: disk.rng.randrange(len(data) + 1)])
                    raise OSError(fault.errno, "simulated short write", self.path)
                case Effect.SPLIT_WRITE:
                    cut = disk.rng.randrange(len(data) + 1)
                    disk.write(node, position, data[:cut])
                    disk.write(node, position + cut, data[cut:])
                    return
                case Effect.MISDIRECT:
                    disk.write(node, disk.rng.randrange(node.cached.size // SECTOR + 1) * SECTOR, data)
                    return
                case _:
                    pass
        disk.write(node, position, data)

    def size(self) -> i64:
        if not self._open or self._life != self._disk.life:
            raise OSError(errno.EBADF, "the file is closed, or its process is dead", self.path)
        return self._node.cached.size

    def truncate(self, size: i64) -> None:
        self._check("truncate", size, 0)
        if size != self._node.cached.size:
            self._disk.truncate(self._node, size)

    def sync(self) -> None:
        fault = self._check("sync", 0, 0)
        if fault is not None and fault.effect is Effect.FAIL_SYNC_AND_DROP:
            self._disk.drop_changes(self._node)
            raise OSError(fault.errno, "simulated failed sync", self.path)
        self._disk.make_durable(self._node)

    def close(self) -> None:
        self._open = False

    def descriptor(self) -> int:
        return -1


class SimLock(Lock):
    def __init__(self, disk: "SimDisk", path: str) -> None:
        self._disk = disk
        self._path = path
        self._life = disk.life

    def release(self) -> None:
        if self._life == self._disk.life:
            self._disk.locks.discard(self._path)


ENDLESS_BYTES: Final = 1 << 40


class SimDisk(FileSystem):
    """Relative and absolute paths mean the same; `root` exists from the start, durably."""

    def __init__(
        self, rng: Random, clock_ms: Callable[[], int] = lambda: 0, capacity_bytes: int = ENDLESS_BYTES
    ) -> None:
        self.rng = rng
        self._clock_ms = clock_ms
        self.capacity_bytes = capacity_bytes
        """What fits. Whoever writes past it is told that the disk is full; one that is endless is not measured."""
        self._numbers = itertools.count(1)
        self._orders = itertools.count()
        self._root = DirectoryNode(0)
        self.life = 0
        """How often the process on this disk has died: handles of an earlier life are dead."""
        self.locks: set[str] = set()
        self.faults: list[Fault] = []
        self.counts: dict[str, int] = {}
        """How often each kind of operation and each fault happened."""
        self.on_operation: Callable[[str, str, int, int], None] | None = None
        """Called before each operation with its kind, path, position and size: to slow it, or to look."""
        self.after_change: Callable[[SimDisk], None] | None = None
        """Called after everything that changed the cached or the durable state: where crash tests take images."""
        self.is_cold: Callable[[str, int, int], bool] | None = None
        """Whether a read would have to wait for the disk; nothing is cold unless this says so."""

    # Paths

    def _find(self, path: str) -> Node:
        node: Node = self._root
        for name in path.split("/"):
            if name and name != ".":
                if not isinstance(node, DirectoryNode):
                    raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
                found = node.cached.get(name)
                if found is None:
                    raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
                node = found
        return node

    def _find_directory(self, path: str) -> DirectoryNode:
        node = self._find(path)
        if not isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def _find_file(self, path: str) -> FileNode:
        node = self._find(path)
        if not isinstance(node, FileNode):
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        return node

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        folder, _, name = path.rstrip("/").rpartition("/")
        return self._find_directory(folder), name

    # What happens to every operation

    def begin(self, operation: str, path: str, position: i64 = 0, size: i64 = 0) -> Fault | None:
        """Counts it, runs the hook, and raises or returns the fault that is due."""
        self.counts[operation] = self.counts.get(operation, 0) + 1
        if self.on_operation is not None:
            self.on_operation(operation, path, position, size)
        for fault in self.faults:
            if fault.strikes(operation, path):
                name = fault.effect.value
                self.counts[name] = self.counts.get(name, 0) + 1
                if fault.effect is Effect.FAIL:
                    raise OSError(fault.errno, f"simulated failure of {operation}", path)
                return fault
        return None

    def _changed(self) -> None:
        if self.after_change is not None:
            self.after_change(self)

    def write(self, node: FileNode, position: i64, data: bytes) -> None:
        if not data:
            return
        if self.capacity_bytes < ENDLESS_BYTES:
            grows = position + len(data) - len(node.cached.data)
            if grows > 0 and grows > self.usable_bytes("/"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        node.cached.write(position, data)
        node.modified_ms = self._clock_ms()
        node.changes.append(Write(next(self._orders), node, position, data))
        self._changed()

    def truncate(self, node: FileNode, size: i64) -> None:
        node.cached.truncate(size)
        node.modified_ms = self._clock_ms()
        node.changes.append(Truncate(next(self._orders), node, size))
        self._changed()

    def make_durable(self, node: Node) -> None:
        for change in self._take_changes(node):
            change.apply()
        self._changed()

    def drop_changes(self, node: Node) -> None:
        """The kernel calls the pages clean without having written them: a later sync has nothing left to do."""
        self._take_changes(node)
        node.differs = True
        self._changed()

    def _take_changes(self, node: Node) -> list[Change]:
        """The node's unsynced changes, and those of a directory that it shares a rename with, in order."""
        changes, node.changes = node.changes, []
        for change in changes:
            for owner in change.owners():
                if owner is not node and owner.changes:
                    others = self._take_changes(owner)
                    both = {each.order: each for each in (*changes, *others)}
                    return [both[order] for order in sorted(both)]
        return changes

    # The file system

    def open(self, path: str, create: bool = False) -> File:
        self.begin("open", path)
        parent, name = self._parent(path)
        node = parent.cached.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            node = FileNode(next(self._numbers), self._clock_ms())
            parent.cached[name] = node
            parent.changes.append(Link(next(self._orders), parent, name, node))
            self._changed()
        if not isinstance(node, FileNode):
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        return SimFile(self, path, node)

    def list_directory(self, path: str) -> list[str]:
        self.begin("list", path)
        return sorted(self._find_directory(path).cached)

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_directory(self, path: str) -> bool:
        try:
            return isinstance(self._find(path), DirectoryNode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def file_size(self, path: str) -> i64:
        return self._find_file(path).cached.size

    def modified_ms(self, path: str) -> i64:
        return self._find_file(path).modified_ms

    def make_directory(self, path: str) -> None:
        self.begin("make_directory", path)
        parent, name = self._parent(path)
        if name in parent.cached:
            raise FileExistsError(errno.EEXIST, "it is there", path)
        node = DirectoryNode(next(self._numbers))
        parent.cached[name] = node
        parent.changes.append(Link(next(self._orders), parent, name, node))
        self._changed()

    def make_directories(self, path: str) -> None:
        """All directories on the way to `path`, durably: what stood there before the machine was switched on."""
        at = ""
        for name in path.split("/"):
            if name:
                at = f"{at}/{name}"
                if not self.exists(at):
                    parent, _ = self._parent(at)
                    parent.cached[name] = parent.durable[name] = DirectoryNode(next(self._numbers))

    def rename(self, source: str, target: str) -> None:
        self.begin("rename", source)
        source_parent, source_name = self._parent(source)
        target_parent, target_name = self._parent(target)
        node = source_parent.cached.get(source_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", source)
        over = target_parent.cached.get(target_name)
        if over is node:
            return
        if isinstance(over, DirectoryNode) and (isinstance(node, FileNode) or over.cached):
            raise OSError(errno.ENOTEMPTY if isinstance(node, DirectoryNode) else errno.EISDIR, "in the way", target)
        if isinstance(over, FileNode) and isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, "a file is in the way", target)
        del source_parent.cached[source_name]
        target_parent.cached[target_name] = node
        change = Rename(next(self._orders), source_parent, source_name, target_parent, target_name, node)
        for owner in change.owners():
            owner.changes.append(change)
        self._changed()

    def remove(self, path: str) -> None:
        self.begin("remove", path)
        self._find_file(path)
        self._unlink(path)

    def remove_directory(self, path: str) -> None:
        self.begin("remove_directory", path)
        if self._find_directory(path).cached:
            raise OSError(errno.ENOTEMPTY, "not empty", path)
        self._unlink(path)

    def _unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        node = parent.cached.pop(name)
        parent.changes.append(Unlink(next(self._orders), parent, name, node))
        self._changed()

    def sync_directory(self, path: str) -> None:
        fault = self.begin("sync_directory", path)
        node = self._find_directory(path)
        if fault is not None and fault.effect is Effect.FAIL_SYNC_AND_DROP:
            self.drop_changes(node)
            raise OSError(fault.errno, "simulated failed sync", path)
        self.make_durable(node)

    def lock(self, path: str) -> Lock:
        self.open(path, create=True).close()
        if path in self.locks:
            raise BlockingIOError(f"{path} is held by another process")
        self.locks.add(path)
        return SimLock(self, path)

    def usable_bytes(self, path: str) -> i64:
        return self.capacity_bytes - sum(
            len(node.cached.data) for _, node in self._walk() if isinstance(node, FileNode)
        )

    def total_bytes(self, path: str) -> i64:
        return self.capacity_bytes

    # Crashes

    def _walk(self) -> Iterator[tuple[str, Node]]:
        """Every path a process sees, with its node, in the order of their names."""
        stack: list[tuple[str, Node]] = [("", self._root)]
        while stack:
            path, node = stack.pop()
            yield path or "/", node
            if isinstance(node, DirectoryNode):
                stack.extend((f"{path}/{name}", node.cached[name]) for name in sorted(node.cached, reverse=True))

    def _all_nodes(self) -> list[Node]:
        """Every node that has a name, or had one that power loss may bring back."""
        seen: dict[int, Node] = {0: self._root}
        stack: list[Node] = [self._root]
        while stack:
            node = stack.pop()
            if isinstance(node, DirectoryNode):
                near = [*node.cached.values(), *node.durable.values()]
                near += [change.node for change in node.changes if isinstance(change, Link | Rename | Unlink)]
                for child in near:
                    if child.number not in seen:
                        seen[child.number] = child
                        stack.append(child)
        return list(seen.values())

    def unsynced(self) -> list[Change]:
        """All changes that power loss may undo, oldest first."""
        changes: dict[int, Change] = {}
        for node in self._all_nodes():
            for change in node.changes:
                changes[change.order] = change
        return [changes[order] for order in sorted(changes)]

    def kill(self) -> None:
        """kill -9: handles and locks die, the kernel keeps what was written."""
        self.life += 1
        self.locks.clear()

    def power_loss(self, rng: Random | None = None) -> Kept:
        """Loses a random part of what was not synced; returns what was kept."""
        kept = random_survivors(self.unsynced(), rng or self.rng)
        self.power_loss_keeping(kept)
        return kept

    def power_loss_keeping(self, kept: Kept) -> None:
        """Exactly these of `unsynced()` survive, in their order; the process dies."""
        nodes = self._all_nodes()
        for index, change in enumerate(self.unsynced()):
            survivor = kept.get(index)
            if survivor is WHOLE:
                change.apply()
            elif survivor is not None:
                assert isinstance(change, Write), change
                change.apply_parts(survivor.parts, survivor.whole_size)
        for node in nodes:
            if node.changes or node.differs:
                node.changes = []
                node.differs = False
                if isinstance(node, FileNode):
                    node.cached = node.durable.copy()
                else:
                    node.cached = dict(node.durable)
        self.kill()

    def write_back(self, rng: Random, share: float) -> None:
        """What the kernel does by itself: some of the unsynced changes become durable, in any order across files."""
        for node in self._all_nodes():
            if node.changes and rng.random() < share:
                self.make_durable(node)

    # Damage and older images

    def flip_bit(self, path: str, bit: int) -> None:
        """Rot: the byte on the disk has changed, durably, and nobody was told."""
        node = self._find_file(path)
        for contents in (node.cached, node.durable):
            if bit >> 3 < contents.size:
                value = contents.read(bit >> 3, 1)[0] ^ 1 << (bit & 7)
                contents.write(bit >> 3, bytes([value]))

    def cut_file(self, path: str, size: int) -> None:
        """The file has lost its end, durably."""
        node = self._find_file(path)
        for contents in (node.cached, node.durable):
            if size < contents.size:
                contents.truncate(size)

    def fork(self) -> "SimDisk":
        """An independent disk in the same state, unsynced changes included; no process, no faults, no hooks."""
        copy = SimDisk(Random(0), self._clock_ms, self.capacity_bytes)
        originals = self._all_nodes()
        twins: dict[int, Node] = {0: copy._root}
        for node in originals:
            if node.number:
                twins[node.number] = (
                    FileNode(node.number, node.modified_ms)
                    if isinstance(node, FileNode)
                    else DirectoryNode(node.number)
                )
        for node in originals:
            twin = twins[node.number]
            twin.differs = node.differs
            if isinstance(node, FileNode):
                assert isinstance(twin, FileNode)
                twin.cached, twin.durable = node.cached.copy(), node.durable.copy()
            else:
                assert isinstance(twin, DirectoryNode)
                twin.cached = {name: twins[child.number] for name, child in node.cached.items()}
                twin.durable = {name: twins[child.number] for name, child in node.durable.items()}
        for change in self.unsynced():
            twin_change = moved(change, twins)
            for owner in twin_change.owners():
                owner.changes.append(twin_change)
        copy._numbers = itertools.count(1 + max(node.number for node in originals))
        copy._orders = itertools.count(next(self._orders))
        return copy

    def restore(self, image: "SimDisk") -> None:
        """The machine comes back with an older image of its disk (X6), which stays usable."""
        copy = image.fork()
        self._root, self._numbers, self._orders = copy._root, copy._numbers, copy._orders
        self.kill()

    def files(self, part: str) -> list[str]:
        """The paths that a process sees and that have this in them."""
        return [path for path, node in self._walk() if isinstance(node, FileNode) and part in path]

    def peek(self, path: str, start: i64 = 0, end: i64 = -1) -> bytes:
        """What a process would read from the file, or from a part of it; for checkers, who are no process."""
        cached = self._find_file(path).cached
        return cached.read(start, (cached.size if end < 0 else end) - start)

    def contents(self) -> dict[str, bytes | None]:
        """Every path a process sees: a file's bytes, None for a directory. For comparing disks in tests."""
        return {path: node.cached.to_bytes() if isinstance(node, FileNode) else None for path, node in self._walk()}

    def fingerprint(self) -> int:
        """Equal for disks that look the same to a process; of use within one run only."""
        parts: list[object] = []
        for path, node in self._walk():
            parts.append(path)
            if isinstance(node, FileNode):
                parts.append(bytes(node.cached.data).rstrip(b"\0"))
                parts.append(node.cached.size)
        return hash(tuple(parts))
