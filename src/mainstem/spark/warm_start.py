"""A process that has imported PySpark and becomes the source of a stream by forking, as often as it is asked.

    python -P warm_start.py serve SOCKET MODULE [MODULE ...]
    python -I -S warm_start.py ask SOCKET ARGUMENTS

Spark starts a new Python for the source of every stream, and importing PySpark and Arrow is some 0.6 s of processor
time before a query reads its first offset. A session on this machine has one process that has done so (`worker_python`
starts it, and it ends when that one does); what Spark starts in its place only asks it for a fork, hands over its
environment and its outputs, and lives as long as the fork does. Where nobody answers, it becomes what Spark wanted:
Python with ARGUMENTS. Run as a file, so that asking imports next to nothing.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

REQUEST_BYTES_MAX = 1 << 20
ASK_WITHIN_S = 5.0
FAILED = 1


def ask(path: str, arguments: list[str]) -> NoReturn:
    """Stands for the fork: whoever ends the one has ended the other."""
    request = json.dumps({"environ": dict(os.environ), "arguments": arguments, "cwd": os.getcwd()}).encode()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        server.settimeout(ASK_WITHIN_S)
        server.connect(path)
        socket.send_fds(server, [len(request).to_bytes(4, "big")], [0, 1, 2])
        server.sendall(request)
        if server.recv(1) != b"+":
            raise OSError("no fork")
    except OSError:
        os.execv(sys.executable, [sys.executable, *arguments])
    server.settimeout(None)
    status = server.recv(1)
    os._exit(status[0] if status else FAILED)


def serve(path: str, modules: list[str]) -> None:
    """Until its standard input ends, which is when the process that started it does."""
    import importlib
    import selectors
    from contextlib import suppress

    # A key that interrupts the driver is not meant for the streams, which the driver stops; Spark sees to that, too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for module in modules:
        with suppress(ImportError):
            importlib.import_module(module)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, selectors.DefaultSelector() as selector:
        listener.bind(path)
        listener.listen()
        selector.register(listener, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if 0 in ready:
                return
            connection, _ = listener.accept()
            with connection, suppress(OSError, ValueError):
                connection.settimeout(ASK_WITHIN_S)
                _fork(connection, listener)


def _fork(connection: socket.socket, listener: socket.socket) -> None:
    head, fds, _, _ = socket.recv_fds(connection, 4, 3)
    try:
        size = int.from_bytes(head, "big")
        if len(head) != 4 or len(fds) != 3 or size > REQUEST_BYTES_MAX:
            raise ValueError("not a request")
        request = b""
        while len(request) < size:
            got = connection.recv(size - len(request))
            if not got:
                raise OSError("who asked is gone")
            request += got
        told = json.loads(request)
        if os.fork() == 0:
            listener.close()
            _become(connection, fds, told["environ"], told["arguments"], told["cwd"])
    finally:
        for fd in fds:
            os.close(fd)


def _become(
    connection: socket.socket, fds: list[int], environ: dict[str, str], arguments: list[str], cwd: str
) -> NoReturn:
    """In the fork: what `python -P FILE MODULE` would be in that environment."""
    status = FAILED
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environ)
        time.tzset()
        known = set(sys.path)
        sys.path[:0] = [each for each in environ.get("PYTHONPATH", "").split(os.pathsep) if each and each not in known]
        connection.settimeout(None)
        connection.sendall(b"+")
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        import runpy

        _, script, *rest = arguments
        sys.argv[:] = [script, *rest]
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code & 0xFF if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            connection.sendall(bytes([status]))
        finally:
            os._exit(status)


def _end_with(connection: socket.socket) -> None:
    """Spark knows the process that asked, and ends that one."""
    connection.recv(1)
    os._exit(FAILED)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(sys.argv[2], sys.argv[3:])
    serve(sys.argv[2], sys.argv[3:])
