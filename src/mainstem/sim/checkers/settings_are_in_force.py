"""R11: a setting that was acknowledged is in force, in the same life of the broker: its logs go by it.

Of those that administrators change while a run goes on. Looked at whenever the broker has followed its metadata to the
end, when a start is through, before the broker dies, and at the end: a log that a move has put in its place, with
nothing changed in the metadata, is looked at by then. What a setting is, the metadata says; what is in force, each log.
"""

from typing import Final

from mainstem.broker.app import Broker
from mainstem.core.controller.image import TOPIC
from mainstem.core.log.config import TOPIC_CONFIGS
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation

CHANGED: Final = (
    "max.message.bytes",
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "internal.segment.bytes",
    "min.cleanable.dirty.ratio",
    "segment.index.bytes",
)


class SettingsAreInForce(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._followed = -1

    def forget(self) -> None:
        self._followed = -1

    def after_step(self, broker: Broker) -> None:
        if broker._quorum.followed_end != self._followed:
            self._followed = broker._quorum.followed_end
            self._look(broker)

    def served(self, broker: Broker) -> None:
        self._look(broker)

    def died(self, broker: Broker | None, how: str) -> None:
        if broker is not None and self.world.process.is_serving:
            self._look(broker)

    def at_end(self, broker: Broker) -> None:
        self._look(broker)

    def _look(self, broker: Broker) -> None:
        if broker._quorum.followed_end != broker._quorum.published_end:
            return  # a change is under way
        for partition in broker.partitions:
            for name, text in broker.image.config(TOPIC, partition.topic).items():
                if name in CHANGED:
                    self._check(str(partition), name, TOPIC_CONFIGS[name].parse(text), partition.log.config.value(name))

    def _check(self, where: str, name: str, wanted: object, found: object) -> None:
        if found != wanted:
            raise Violation("R11 a setting is in force", f"{name} is {wanted}, and the log of {where} has {found}")
