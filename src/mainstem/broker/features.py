"""The features of a cluster: which levels this broker can serve, and which are in force.

The metadata keeps every finalized feature, also those whose APIs are not built yet, so that another broker finds them
as it left them. Clients are told only of what is served: one that read `group.version` 1 would rely on it.
"""

from typing import Final

from mainstem.core.controller.image import ClusterImage

KRAFT_VERSION: Final = "kraft.version"
METADATA_VERSION: Final = "metadata.version"
TRANSACTION_VERSION: Final = "transaction.version"

SUPPORTED: Final = {
    METADATA_VERSION: (7, 30),
    KRAFT_VERSION: (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
"""Lowest and highest level, as clients are told."""


class Features:
    def __init__(self) -> None:
        self.supported = SUPPORTED
        self._image = ClusterImage()
        self.finalized_epoch = -1
        """The offset of the metadata log that the finalized levels were read at."""

    def update(self, image: ClusterImage, offset: int) -> None:
        self._image = image
        self.finalized_epoch = offset

    def finalized(self) -> dict[str, int]:
        levels = {name: level for name, level in self._image.features.items() if name in SUPPORTED}
        levels.setdefault(KRAFT_VERSION, 1)
        return levels
