"""The file descriptors of the process, shared by the files of logs and the connections of peers.

A log that cannot open its file takes its directory offline (D5). So nobody may bring that about who does no more than
connect, as often as the system lets them:

- A part of the descriptors is the logs' alone; connections past the rest are closed at once, as those past
  `max.connections` are.
- What connections do not take the logs may. A connection that comes takes its descriptor from the logs, whose files are
  closed when they are idle and opened again when they are needed.
- What a flush holds cannot be closed for anybody: flushes have a part of their own (`flush_turns`).
"""

from typing import Final

from mainstem.net.sockets import ConnectionLimit
from mainstem.storage.open_files import OpenFiles

_FILES_SHARE: Final = 4
"""One in so many is the logs' alone, and half as many are the controller's connections'."""


class Descriptors:
    def __init__(self, most: int, files: OpenFiles, connections_most: int) -> None:
        """`most` is what files and connections may have together, `connections_most` is `max.connections`."""
        self._most = most
        self._files = files
        for_files = max(most // _FILES_SHARE, 1)
        for_controller = max(most // _FILES_SHARE // 2, 1)
        self._files_least = for_files
        self.clients = ConnectionLimit(connections_most, max(most - for_files - for_controller, 1), self._changed)
        self.controllers = ConnectionLimit(ceiling=for_controller, on_change=self._changed)

    def _changed(self) -> None:
        taken = self.clients.count + self.controllers.count
        self._files.resize(max(self._most - taken, self._files_least))
