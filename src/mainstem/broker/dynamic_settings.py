"""Settings of this broker that were changed while it runs, handed to those who go by them.

They come from the metadata: at the start, and with each change after it. What logs go by is taken over in
`Partitions`, before a log is opened by it. A setting that has no effect here is one warning when it is set.
"""

import logging

from mainstem.broker.config import EFFECTIVE, BrokerConfig
from mainstem.broker.config_view import ConfigView
from mainstem.broker.drivers.compaction import Compaction
from mainstem.core.controller.image import BROKER, ClusterImage, ImageDelta
from mainstem.net.sockets import ConnectionLimit

log = logging.getLogger(__name__)


class DynamicSettings:
    def __init__(self, config: BrokerConfig, connections: ConnectionLimit, compaction: Compaction) -> None:
        self._config = config
        self._connections = connections
        self._compaction = compaction
        self._warned: set[str] = set()

    def follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        if (BROKER, "") in delta.configs or (BROKER, str(self._config.node_id)) in delta.configs:
            self.take(image)

    def take(self, image: ClusterImage) -> None:
        view = ConfigView(self._config.given, image, self._config.node_id)
        try:
            self._connections.most = view.get_int("max.connections")
            self._compaction.take_settings(view)
        except ValueError as error:
            # It was checked when it was set, though not by us where the directory was Kafka's.
            log.error("a setting stays as it is: %s", error)
        for name in sorted({*view.dynamic, *view.default} - EFFECTIVE - self._warned):
            self._warned.add(name)
            log.warning("%s was set while running and has no effect here", name)
