"""What the broker answers: one module per API, named after its key. The directory listing is the support table.

A module has
- `API_KEY`, `MIN_VERSION`, `MAX_VERSION`: what is served, which is also what is advertised;
- `handle(broker, context, request) -> response`, a plain function when the answer is there at once and a coroutine
  when it must wait; or, where a request is too hot to be decoded into messages, `handle_frame(broker, context,
  exchange)`, which answers the exchange itself.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


@cache
def served() -> dict[int, ModuleType]:
    """The modules by API key. Nobody changes what is returned: which there are is known once and for all."""
    modules = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__) if found.name[0] == "k"]
    return {module.API_KEY: module for module in sorted(modules, key=lambda module: int(module.API_KEY))}
