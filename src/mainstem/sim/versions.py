"""What a run depends on besides its seed: our code, Python, and the libraries that decide how small a batch becomes."""

import platform
import zlib
from importlib.metadata import version

from mainstem._version import VERSION


def versions() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in ("cramjam", "lz4"))
    return f"Mainstem {VERSION}, Python {platform.python_version()}, {libraries}, zlib {zlib.ZLIB_RUNTIME_VERSION}"
