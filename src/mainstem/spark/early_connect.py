"""Connects a Python process to its JVM first, and imports PySpark second.

    python -P early_connect.py MODULE

Spark gives the process of a stream's source ten seconds to connect, a number in its code. Of what happens before it
connects, nearly all is importing PySpark: half a second of processor time, for which a busy machine may take ten. The
connection needs none of it, and once it is made Spark waits as long as it takes.

Run as a file by the launcher (`worker_python`), so it imports nothing of this package. Only for Unix sockets; over TCP
the process authenticates itself by PySpark's own code, and connects when it always has.
"""

from __future__ import annotations

import importlib
import os
import runpy
import socket
import sys
from typing import Any

VARIABLE = "PYTHON_WORKER_FACTORY_SOCK_PATH"
TIMEOUT_S = 15
BUFFER_BYTES = 65536


def main() -> None:
    module, path = sys.argv[1], os.environ.get(VARIABLE)
    if path is not None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", TIMEOUT_S)))
        connection.connect(path)
        hand_over(path, connection)
    sys.argv[:] = [module]
    # A fork has imported it. It runs as a module of its own all the same, and Python would warn that it does.
    sys.modules.pop(module, None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def hand_over(path: str, connection: socket.socket) -> None:
    """PySpark gets this connection when it asks for one to `path`, and its own for any other."""
    # Any: what the module has imported is not its own to export, but that is where its function looks.
    worker_util: Any = importlib.import_module("pyspark.worker_util")
    own = worker_util.local_connect_and_auth

    def connected(conn_info: Any, auth_secret: Any) -> Any:
        if conn_info != path or auth_secret is not None:
            return own(conn_info, auth_secret)
        return connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", BUFFER_BYTES))), connection

    worker_util.local_connect_and_auth = connected


if __name__ == "__main__":
    main()
