"""Who works in a run: which clients there are, and how many of each.

Drawn from the seed; those with transactions from a stream of their own.
"""

from collections.abc import Coroutine
from random import Random
from typing import TYPE_CHECKING, Any

from mainstem.core.txn.states import TV2
from mainstem.sim import late_markers, overreacher, own_copier, stager, zombies
from mainstem.sim.admin import Admin
from mainstem.sim.client import SimClient
from mainstem.sim.group_members import Member
from mainstem.sim.ledger import Place
from mainstem.sim.own_client import OwnConsumer, OwnGroup, OwnProducer
from mainstem.sim.sharers import Sharer, Trimmer
from mainstem.sim.tuning import SHARED_GROUP, TRIMMED
from mainstem.sim.txn_members import add_members
from mainstem.sim.txn_workload import CommittedReader, TxnProducer
from mainstem.sim.workloads import Producer, Reader

if TYPE_CHECKING:
    from mainstem.sim.world import World


def add_clients(world: "World") -> None:
    rng = Random(f"{world.seed}:clients")
    producers = rng.randint(1, 2)
    has_plain = rng.random() < 0.6
    readers = [("log", 0), ("short", 0)]
    if world.is_transactional:
        # All that works without transactions is worked at in the other runs.
        producers, has_plain, readers = 1, False, readers[:1]
        _add_transactional(world)
    for index in range(producers):
        _add_producer(world, f"idempotent{index}", "log", 2, idempotent=True)
    if has_plain:
        _add_producer(world, "plain", "log", 2, idempotent=False)
    _add_producer(world, "shorter", "short", 1, idempotent=rng.random() < 0.7)
    for index in range(3 if world.theme == "compaction" else 1):
        _add_producer(world, f"keyed{index}", "keyed", 1, idempotent=True)
    world.lines.add_producers()
    for place in readers:
        _add_reader(world, f"reader-{place[0]}", place)
    if world.theme == "groups" or rng.random() < 0.5:
        for index in range(rng.randint(2 if world.theme == "groups" else 1, 3)):
            _add_member(world, f"member{index}", static=rng.random() < 0.3)
    if rng.random() < 0.25:
        world.add_client("own-producer", lambda client, rng: OwnProducer(world, client, rng, "log", 2).run())
    own = _own_group(world)
    if rng.random() < 0.25:
        for index in range(rng.randint(1, 2)):
            world.add_client(f"own-consumer{index}", lambda client, rng: OwnConsumer(world, client, rng, own).run())
    if rng.random() < 0.7:

        def administer(client: SimClient, rng: Random) -> Coroutine[Any, Any, None]:
            admin = Admin(world, client, rng)
            world.admins.append(admin)
            return admin.run()

        world.add_client("admin", administer)
    if overreacher.comes(world):
        world.add_client(
            overreacher.NAME,
            lambda client, rng: overreacher.Overreacher(world, client, rng, overreacher.PLACE).run(),
        )


def _own_group(world: "World") -> OwnGroup:
    """What our own consumers read: in half of the runs with transactions what those have committed."""
    if world.is_transactional and Random(f"{world.seed}:own group").random() < 0.5:
        return OwnGroup("own-committed", "txn", is_committed=True)
    return OwnGroup("own", "log", is_committed=False)


def transactional(world: "World") -> tuple[float, dict[str, bool]]:
    """How many words of coordinators are late; and of each transactional id whether its client is of version 2."""
    rng = Random(f"{world.seed}:transactional")
    late_word_share = rng.choice((0.0, 0.4, 0.4))
    versions = [rng.random() < 0.65 and world.txn_shape.level >= TV2 for _ in range(rng.randint(2, 4))]
    return late_word_share, {f"txn{'b' if tv2 else 'a'}{index}": tv2 for index, tv2 in enumerate(versions)}


def _add_transactional(world: "World") -> None:
    world.process.late_word_share, clients = transactional(world)
    world.process.slow_marker_share = Random(f"{world.seed}:slow markers").choice((0.0, 0.0, 0.3))
    world.late_markers.share = Random(f"{world.seed}:share of late markers").choice(late_markers.SHARES)
    for index, (name, tv2) in enumerate(clients.items()):
        prepares = index > 0 and tv2 and world.txn_shape.two_phase
        _add_txn_producer(world, name, name, tv2=tv2, prepares=prepares)
        if index == 0 and Random(f"{world.seed}:rivals").random() < 0.3:
            _add_txn_producer(world, f"{name}-rival", name, tv2=tv2, is_rival=True)
    add_members(world)
    own_copier.add_copiers(world)
    for place in dict.fromkeys(world.txn_places):
        _add_committed_reader(world, f"committed-{place[0]}-{place[1]}", place)
    if world.tuning.trims_transactions:
        world.add_client("trimmer", lambda client, rng: Trimmer(world, client, rng, (TRIMMED, 0)).run())
    if world.tuning.shares_groups:
        world.add_client("sharer", lambda client, rng: Sharer(world, client, rng, SHARED_GROUP).run())
    if stager.comes(world.seed):
        _add_stager(world, tv2=world.txn_shape.level >= TV2)
    if zombies.comes(world.seed):
        world.network.in_time.add(zombies.NAME)
        world.add_client(zombies.NAME, lambda client, rng: zombies.Zombie(world, client, rng).run())


def _add_txn_producer(
    world: "World", name: str, transactional_id: str, *, tv2: bool, is_rival: bool = False, prepares: bool = False
) -> None:
    if not tv2:
        world.network.in_time.add(name)

    def work(client: SimClient, rng: Random) -> Coroutine[Any, Any, None]:
        made = TxnProducer(world, client, rng, transactional_id, tv2=tv2, is_rival=is_rival, prepares=prepares)
        return made.run()

    world.add_client(name, work)


def _add_stager(world: "World", *, tv2: bool) -> None:
    if not tv2:
        world.network.in_time.add(stager.NAME)
    world.add_client(stager.NAME, lambda client, rng: stager.Stager(world, client, rng, tv2=tv2).run())


def _add_committed_reader(world: "World", name: str, place: Place) -> None:
    world.add_client(name, lambda client, rng: CommittedReader(world, client, rng, place).run())


def _add_producer(world: "World", name: str, topic: str, partitions: int, *, idempotent: bool) -> None:
    world.add_client(
        name, lambda client, rng: Producer(world, client, rng, topic, partitions, idempotent=idempotent).run()
    )


def _add_reader(world: "World", name: str, place: Place) -> None:
    world.add_client(name, lambda client, rng: Reader(world, client, rng, place).run())


def _add_member(world: "World", name: str, *, static: bool) -> None:
    world.add_client(name, lambda client, rng: Member(world, client, rng, "group", "log", 2, static).run())
