"""What a campaign must have seen: one in which a fault never struck, or a rare branch was never taken, has proved
nothing about it, and fails.

Each is to happen in so many seeds that a campaign of `SEEDS_MIN` has it but for one time in a thousand: seven times, on
average. What happens less often says in `SELDOM` how large a campaign has to be to be asked for it.
"""

from collections.abc import Mapping
from typing import Final

from mainstem.sim.checkers.failed_directory import REACHED as FAILURES_REACHED
from mainstem.sim.checkers.metadata_replays import REACHED as METADATA_REACHED
from mainstem.sim.epoch_asker import REACHED as TERMS_REACHED
from mainstem.sim.lines import REACHED as LINES_REACHED
from mainstem.sim.movers import EXPECTED as MOVE_FAULTS
from mainstem.sim.movers import REACHED as MOVE_REACHED
from mainstem.sim.overreacher import REACHED as OVERREACHER_REACHED
from mainstem.sim.own_copier import REACHED as COPIERS_REACHED
from mainstem.sim.rot_inside import EXPECTED as ROT_FAULTS
from mainstem.sim.rot_inside import REACHED as ROT_REACHED
from mainstem.sim.rotten_indexes import EXPECTED as INDEX_FAULTS
from mainstem.sim.rotten_indexes import REACHED as INDEX_REACHED
from mainstem.sim.settings import REACHED as SETTINGS_REACHED
from mainstem.sim.stager import REACHED as STAGER_REACHED
from mainstem.sim.swap_faults import EXPECTED as SWAP_FAULTS
from mainstem.sim.tuning import EXPECTED as TUNED_FAULTS
from mainstem.sim.tuning import REACHED as TUNED_REACHED
from mainstem.sim.txn_shape import REACHED as TXN_REACHED
from mainstem.sim.watch import REACHED as WATCH_REACHED
from mainstem.sim.zombies import REACHED as ZOMBIES_REACHED

SEEDS_MIN: Final = 200
"""How many seeds a campaign has of which anything is asked."""

EXPECTED: Final = (
    "N2 delay",
    "N3 overtaken",
    "N4 reset",
    "N5 answer lost",
    "N6 one-way cut",
    "N9 client cut off",
    "N10 late request",
    "N11 clogged one by one",
    "N12 back-pressure",
    "X1 stop",
    "X2 kill",
    "X3 power loss",
    "X4 pause",
    "X4 client paused",
    "X5 death while starting",
    "X5 death after a clean stop",
    "X5 death in one start after the other",
    "X5 death in the last start",
    "X3 switched off after a clean stop",
    "X6 older disk",
    "X7 empty disk",
    "X10 stall",
    "death at a disk operation",
    "C1 retry storm",
    "C2 id taken from a living client",
    "C3 member vanished before SyncGroup",
    "C4 static member replaced",
    "C5 idle producer came back",
    "C6 sequences began anew",
    "K1 skewed clock",
    "K2 clock jump",
    "K2 clock set back",
    "K3 late timers",
    "S1 write fails",
    "S1 read fails",
    "S1 rename fails",
    "S2 disk full",
    "S3 short write",
    "S4 torn write",
    "S4 block lost in a write",
    "S5 writes reordered",
    "S6 failed fsync",
    "S7 name lost",
    "S8 rename lost",
    "S9 bit flipped on the disk",
    "S9 bit flipped on the way",
    "S10 file cut short",
    "S11 misdirected write",
    "S12 slow disk",
    "S12 cold read",
    "S13 directory gone",
    "cleaner checkpoint lost",
    "kernel wrote back",
    "client died",
    "controller message delayed",
    "controller message dropped",
    "controller message repeated",
    "controller answer lost",
    "peer message delayed",
    "marker delayed for long",
    "peer message dropped",
    "peer message repeated",
    "peer answer lost",
    "peer message late",
    "peer answer delayed",
    "N10 end of the transaction before",
    *TUNED_FAULTS,
    *MOVE_FAULTS,
    *ROT_FAULTS,
    *INDEX_FAULTS,
    *SWAP_FAULTS,
)
"""Faults that each campaign must have seen."""

REACHED: Final = (
    "batch sent again",
    "acknowledged with acks=1",
    "log came back shorter",
    "end compared with the disk",
    "allowed loss",
    "record compacted away",
    "tombstone compacted away",
    "reader out of range",
    "commit of a stale generation",
    "group deleted",
    "A2 topic deleted",
    "A2 new topic of an old name read",
    "A3 settings changed",
    "A3 cleanup policy changed",
    "partitions added",
    "log compacted",
    "map of a cleaning full",
    "tombstone sent",
    "own producer acknowledged",
    "own consumer began where its group was",
    "leader joined again",
    "own producer gave up",
    "own producer gave up what was sent",
    "own producer split a batch",
    "own consumer read",
    "own consumer committed",
    "tombstone removed",
    "offset expired",
    "group log replayed",
    "metadata replayed from a snapshot",
    "log given up",
    "damaged log left alone",
    "moment looked up",
    "epoch of a moment checked",
    "committed poll checked",
    "unstable offset looked at",
    "setting checked",
    "newest of a transaction looked for",
    "producer began anew after a loss",
    "records deleted",
    "C5 copy appended after expiry",
    "retention moved a start",
    "start after a clean stop checked",
    "marker of a clean stop looked for",
    "fetch in a session",
    "partition read in a session",
    "stable end told before the high watermark",
    "C3 member put out that never asked for its part",
    "producer known by a snapshot alone",
    "snapshot for what is gone looked at",
    "exited by itself",
    "commit checked",
    "start failed on a sick disk",
    "transaction committed",
    "transaction aborted",
    "transaction given up",
    "transaction left open",
    "transaction checked",
    "transactional offset checked",
    "higher epoch claimed",
    "aborted with a batch on its way",
    "reads between transactions checked",
    "commit lost with the power",
    "transaction torn by a power loss",
    "transaction left open by a power loss",
    "epoch given again after a loss",
    "coordinator compared with its log",
    "epoch of a batch checked",
    "marker checked",
    "markers looked for",
    *FAILURES_REACHED,
    *METADATA_REACHED,
    *TERMS_REACHED,
    *TXN_REACHED,
    *ZOMBIES_REACHED,
    *TUNED_REACHED,
    *MOVE_REACHED,
    *ROT_REACHED,
    *INDEX_REACHED,
    *WATCH_REACHED,
    *STAGER_REACHED,
    *SETTINGS_REACHED,
    *LINES_REACHED,
    *COPIERS_REACHED,
    *OVERREACHER_REACHED,
)
"""Rare branches that each campaign must have taken."""


SELDOM: Final = {
    "partitions added": 500,
    "controller answer lost": 500,
    "stable end told before the high watermark": 500,
    "own producer split a batch": 500,
    "own producer gave up what was sent": 500,
    "S2 disk full": 500,
    "S3 short write": 500,
    "S6 failed fsync": 500,
    "S9 bit flipped on the way": 500,
    "S10 file cut short": 500,
    "own copier began anew": 500,
    "copy checked": 500,
    "group deleted": 1000,
    "damaged log left alone": 1000,
    "S11 misdirected write": 1000,
    "S13 directory gone": 1000,
    **dict.fromkeys(FAILURES_REACHED, 500),
    "C5 copy appended after expiry": 1000,
    "start moved beside a move": 1000,
    "end of a session looked at": 1000,
    "damaged metadata refused": 1000,
    "transaction left open by a power loss": 500,
    "epoch given again after a loss": 2000,
}
"""How many seeds a campaign has before it must have seen these.

Some branches are counted and asked of none: what a checker forgives in one seed of two hundred, as "retry of a batch
that is gone" and "C5 out of order after expiry". A campaign may well be without.
"""


def never_happened(counts: Mapping[str, int], seeds: int) -> list[str]:
    """What a campaign of so many seeds should have seen, and has not."""
    return [name for name in (*EXPECTED, *REACHED) if seeds >= SELDOM.get(name, SEEDS_MIN) and not counts.get(name)]
