"""R11: the metadata that a broker comes back with is the metadata it had, whether from a snapshot or from the log."""

from mainstem.broker.app import Broker
from mainstem.sim.checkers import Checker
from mainstem.sim.ledger import Violation


class MetadataReplays(Checker):
    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self._topics: dict[str, bytes] = {}
        self._followed = -1

    def after_step(self, broker: Broker) -> None:
        if broker._quorum.published_end != self._followed:
            self._followed = broker._quorum.published_end
            self._topics = {name: topic.topic_id for name, topic in broker.image.topics.items()}

    def served(self, broker: Broker) -> None:
        if self._followed >= 0:
            if broker._quorum.published_end < self._followed:
                raise Violation(
                    "R5 committed metadata stays", f"{self._followed} was published, {broker._quorum.published_end} is"
                )
            # What was committed but not yet published when the broker died may have come or gone since.
            gone = [name for name, topic_id in self._topics.items() if topic_id not in broker.image.topics_by_id]
            if gone and not self.world.may_be_gone(gone):
                raise Violation("R11 metadata is replayed", f"topics {gone} are gone after a restart")
        ours = list(broker._quorum.image.encoded_records())
        if ours != list(broker._controller.image.encoded_records()) and not broker._quorum._committed:
            raise Violation("R11 metadata is replayed", "the controller's image and the broker's differ after a start")

    def at_end(self, broker: Broker) -> None:
        for name, there in self.world.admin_topics().items():
            if there is not None and there != (name in broker.image.topics):
                raise Violation(
                    "R11 metadata is replayed",
                    f"topic {name} {'was created and is missing' if there else 'was deleted and is there'}",
                )
