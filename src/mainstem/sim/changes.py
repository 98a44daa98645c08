"""What is on a simulated disk, what is only in its cache, and the changes between the two.

A file or directory is a node with a cached state, a durable state and the changes not yet carried from one to the
other. Power loss lets some of these changes through: `random_survivors` draws which, `every_survival` lists all that
crash tests try. Applying any subset in order is legal: that is how missing earlier ones become reordered writes, lost
names and renames without their data. So is any part of a write, cut where the disk's sectors or the kernel's pages are:
a journal may have the new size of a file, and the disk not yet all the blocks below it.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from mypy_extensions import i64

SECTOR = 512
PAGE = 4096


class Contents:
    """Bytes with a size: everything from `len(data)` to `size` is zeros."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytes | bytearray = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size: i64 = max(size, len(data))

    def copy(self) -> "Contents":
        return Contents(self.data, self.size)

    def read(self, position: i64, size: i64) -> bytes:
        end = min(position + size, self.size)
        if position >= end:
            return b""
        found = bytes(self.data[position:end])
        return found if len(found) == end - position else found.ljust(end - position, b"\0")

    def write(self, position: i64, data: bytes) -> None:
        held = len(self.data)
        end = position + len(data)
        if position > held:
            self.data += bytes(position - held)
        if position >= held:
            self.data += data
        else:
            self.data[position:end] = data
        if end > self.size:
            self.size = end

    def truncate(self, size: i64) -> None:
        if size < len(self.data):
            del self.data[size:]
        self.size = size

    def to_bytes(self) -> bytes:
        return self.read(0, self.size)


class FileNode:
    __slots__ = ("cached", "changes", "differs", "durable", "modified_ms", "number")

    def __init__(self, number: int, now_ms: int) -> None:
        self.number = number
        self.cached = Contents()
        self.durable = Contents()
        self.changes: list[Change] = []
        self.differs = False
        """Whether the cache holds what was neither synced nor is waiting to be (after a failed sync)."""
        self.modified_ms = now_ms


class DirectoryNode:
    __slots__ = ("cached", "changes", "differs", "durable", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.cached: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.changes: list[Change] = []
        self.differs = False


Node = FileNode | DirectoryNode


class Change(ABC):
    """Something done to a file or to names that power loss may still undo."""

    __slots__ = ("order",)

    def __init__(self, order: int) -> None:
        self.order = order

    @abstractmethod
    def apply(self) -> None:
        """Carries it to the durable state."""

    @abstractmethod
    def owners(self) -> tuple[Node, ...]:
        """The nodes whose sync makes it durable."""


class Write(Change):
    __slots__ = ("data", "node", "position")

    def __init__(self, order: int, node: FileNode, position: i64, data: bytes) -> None:
        super().__init__(order)
        self.node = node
        self.position = position
        self.data = data

    def apply(self) -> None:
        self.node.durable.write(self.position, self.data)

    def apply_parts(self, parts: Sequence[tuple[int, int]], whole_size: bool) -> None:
        """Only these ranges of the data arrive; with `whole_size` the file grows as if all had."""
        for start, end in parts:
            self.node.durable.write(self.position + start, self.data[start:end])
        if whole_size:
            self.node.durable.size = max(self.node.durable.size, self.position + len(self.data))

    def owners(self) -> tuple[Node, ...]:
        return (self.node,)

    def cuts(self, unit: int = SECTOR) -> list[int]:
        """Where the write may tear: every multiple of `unit` on the disk strictly inside it."""
        first = unit - self.position % unit
        return list(range(first, len(self.data), unit))

    def blocks(self, unit: int) -> list[tuple[int, int]]:
        """The parts of it that lie in one block each."""
        return list(itertools.pairwise((0, *self.cuts(unit), len(self.data))))

    def __repr__(self) -> str:
        return f"write #{self.node.number} {self.position}+{len(self.data)}"


class Truncate(Change):
    __slots__ = ("node", "size")

    def __init__(self, order: int, node: FileNode, size: i64) -> None:
        super().__init__(order)
        self.node = node
        self.size = size

    def apply(self) -> None:
        self.node.durable.truncate(self.size)

    def owners(self) -> tuple[Node, ...]:
        return (self.node,)

    def __repr__(self) -> str:
        return f"truncate #{self.node.number} to {self.size}"


class Link(Change):
    """A name appears in a directory."""

    __slots__ = ("directory", "name", "node")

    def __init__(self, order: int, directory: DirectoryNode, name: str, node: Node) -> None:
        super().__init__(order)
        self.directory = directory
        self.name = name
        self.node = node

    def apply(self) -> None:
        self.directory.durable[self.name] = self.node

    def owners(self) -> tuple[Node, ...]:
        return (self.directory,)

    def __repr__(self) -> str:
        return f"create {self.name} (#{self.node.number})"


class Unlink(Change):
    __slots__ = ("directory", "name", "node")

    def __init__(self, order: int, directory: DirectoryNode, name: str, node: Node) -> None:
        super().__init__(order)
        self.directory = directory
        self.name = name
        self.node = node

    def apply(self) -> None:
        # Where an earlier rename was lost the name may stand for something else, which this did not remove.
        if self.directory.durable.get(self.name) is self.node:
            del self.directory.durable[self.name]

    def owners(self) -> tuple[Node, ...]:
        return (self.directory,)

    def __repr__(self) -> str:
        return f"remove {self.name} (#{self.node.number})"


class Rename(Change):
    """Atomic: the old name goes and the new one comes, whatever else is lost."""

    __slots__ = ("node", "source", "source_name", "target", "target_name")

    def __init__(
        self,
        order: int,
        source: DirectoryNode,
        source_name: str,
        target: DirectoryNode,
        target_name: str,
        node: Node,
    ) -> None:
        super().__init__(order)
        self.source = source
        self.source_name = source_name
        self.target = target
        self.target_name = target_name
        self.node = node

    def apply(self) -> None:
        if self.source.durable.get(self.source_name) is self.node:
            del self.source.durable[self.source_name]
        self.target.durable[self.target_name] = self.node

    def owners(self) -> tuple[Node, ...]:
        return (self.source,) if self.source is self.target else (self.source, self.target)

    def __repr__(self) -> str:
        return f"rename {self.source_name} to {self.target_name} (#{self.node.number})"


class Torn:
    """What power loss leaves of a write: the parts that arrived, and whether the file has its new size anyway."""

    __slots__ = ("parts", "whole_size")

    def __init__(self, parts: Sequence[tuple[int, int]], whole_size: bool = False) -> None:
        self.parts = parts
        self.whole_size = whole_size

    @staticmethod
    def at(cut: int) -> "Torn":
        return Torn([(0, cut)])

    def __repr__(self) -> str:
        return f"torn {list(self.parts)}{' at full size' if self.whole_size else ''}"


ZEROED = Torn([], whole_size=True)
"""The size arrived, the bytes did not."""
WHOLE = Torn([], whole_size=False)
"""Stands for a change that arrives as it is; compared by identity."""

Kept = Mapping[int, Torn]
"""By position in `SimDisk.unsynced()`: the changes that power loss lets through."""


def moved(change: Change, twins: Mapping[int, Node]) -> Change:
    """The same change to the copied nodes of a fork."""

    def file(node: FileNode) -> FileNode:
        twin = twins[node.number]
        assert isinstance(twin, FileNode)
        return twin

    def directory(node: DirectoryNode) -> DirectoryNode:
        twin = twins[node.number]
        assert isinstance(twin, DirectoryNode)
        return twin

    match change:
        case Write():
            return Write(change.order, file(change.node), change.position, change.data)
        case Truncate():
            return Truncate(change.order, file(change.node), change.size)
        case Link():
            return Link(change.order, directory(change.directory), change.name, twins[change.node.number])
        case Unlink():
            return Unlink(change.order, directory(change.directory), change.name, twins[change.node.number])
        case Rename():
            return Rename(
                change.order,
                directory(change.source),
                change.source_name,
                directory(change.target),
                change.target_name,
                twins[change.node.number],
            )
    raise AssertionError(change)


def random_survivors(changes: Sequence[Change], rng: Random) -> dict[int, Torn]:
    """What a power loss might keep: nothing, all, a prefix, all but some blocks, or any subset, with torn and zeroed
    writes among them."""
    kind = rng.randrange(8)
    if kind == 0 or not changes:
        return {}
    if kind == 1:
        return dict.fromkeys(range(len(changes)), WHOLE)
    if kind == 4:
        return without_blocks(changes, rng)
    if kind <= 3:
        cut = rng.randrange(len(changes))
        kept = dict.fromkeys(range(cut), WHOLE)
        last = changes[cut]
        if isinstance(last, Write):
            kept[cut] = _random_tear(last, rng)
        return kept
    kept = {}
    share = rng.random()
    for index, change in enumerate(changes):
        if rng.random() < share:
            tear = isinstance(change, Write) and rng.random() < 0.2
            kept[index] = _random_tear(change, rng) if tear and isinstance(change, Write) else WHOLE
    return kept


def without_blocks(changes: Sequence[Change], rng: Random) -> dict[int, Torn]:
    """Names and sizes are as they were, and here and there a block of a file has not been written: what was there
    before is there still, or zeros. Of two writes to one block both are lost, or none.

    A block that a write goes on into is lost more often than others: what is cut there has its length, and nothing
    but a checksum tells that it is not whole.
    """
    unit = rng.choice((SECTOR, SECTOR, SECTOR, PAGE))
    share, share_within = rng.choice(((0.02, 0.3), (0.1, 0.7)))
    shares: dict[tuple[int, int], float] = {}
    for change in changes:
        if isinstance(change, Write):
            for number, block in enumerate(_blocks_of(change, unit)):
                shares[block] = share_within if number > 0 else shares.get(block, share)
    lost = {block for block, share in shares.items() if rng.random() < share}
    kept = dict.fromkeys(range(len(changes)), WHOLE)
    for index, change in enumerate(changes):
        if isinstance(change, Write):
            blocks = _blocks_of(change, unit)
            parts = [part for block, part in blocks.items() if block not in lost]
            if len(parts) < len(blocks):
                kept[index] = Torn(parts, whole_size=True)
    return kept


def _blocks_of(write: Write, unit: int) -> dict[tuple[int, int], tuple[int, int]]:
    """By file and number of the block, the part of a write that lies in it."""
    return {(write.node.number, (write.position + part[0]) // unit): part for part in write.blocks(unit)}


def describe_loss(changes: Sequence[Change], kept: Kept) -> list[str]:
    """What a power loss that keeps these did, by the names of the fault list."""
    found: dict[str, None] = {}
    for index, change in enumerate(changes):
        survivor = kept.get(index)
        if survivor is None:
            if isinstance(change, Link):
                found["S7 name lost"] = None
            elif isinstance(change, Rename):
                found["S8 rename lost"] = None
            if any(later > index for later in kept):
                found["S5 writes reordered"] = None
        elif survivor is not WHOLE:
            found["S4 torn write"] = None
            if survivor.parts and survivor.whole_size:
                found["S4 block lost in a write"] = None
    return list(found)


def _random_tear(write: Write, rng: Random) -> Torn:
    if rng.random() < 0.2:
        return ZEROED
    blocks = write.blocks(rng.choice((SECTOR, PAGE)))
    if rng.random() < 0.5:
        return Torn([(0, rng.choice([0, *(end for _, end in blocks)]))])
    parts = [part for part in blocks if rng.random() < 0.5]
    return Torn(parts, whole_size=rng.random() < 0.5)


def every_survival(
    changes: Sequence[Change], subset_max: int = 3, tear_unit: int = SECTOR
) -> Iterator[dict[int, Torn]]:
    """Every way to lose power that crash tests try, each once.

    All prefixes; each prefix with its last write torn at every multiple of `tear_unit`, or zeroed; everything but the
    bytes of one write, or of one block of it; every subset of up to `subset_max` changes alone; and every subset of up
    to `subset_max` changes missing from the rest.
    """
    count = len(changes)
    everything = dict.fromkeys(range(count), WHOLE)
    for cut in range(count + 1):
        prefix = dict.fromkeys(range(cut), WHOLE)
        yield prefix
        if cut < count:
            torn = changes[cut]
            if isinstance(torn, Write):
                for at in torn.cuts(tear_unit):
                    yield {**prefix, cut: Torn.at(at)}
                yield {**prefix, cut: ZEROED}
                yield {**everything, cut: ZEROED}
                blocks = torn.blocks(tear_unit)
                for lost in blocks if len(blocks) > 1 else ():
                    yield {**everything, cut: Torn([part for part in blocks if part != lost], whole_size=True)}
    for size in range(1, min(subset_max, count) + 1):
        for chosen in itertools.combinations(range(count), size):
            if chosen != tuple(range(size)):
                yield dict.fromkeys(chosen, WHOLE)
            if count - size > subset_max:
                yield {index: WHOLE for index in everything if index not in chosen}
