"""What a broker checks of AlterConfigs and IncrementalAlterConfigs before the controller takes them.

Topics, groups and client metrics are the controller's to check. A broker's own settings can only be checked by the
broker, so they are changed there, as are the levels of its loggers, which nobody else keeps. What was refused here is
left out of what goes to the controller; the answers come back in the order of the request.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from mainstem.broker.config_changes import check_broker_change
from mainstem.broker.config_view import ConfigView
from mainstem.core.controller.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from mainstem.core.java_numbers import is_whole_number
from mainstem.protocol.errors import ErrorCode, RemoteError

if TYPE_CHECKING:
    from mainstem.broker.app import Broker

BROKER_LOGGER: Final = 8
_CONTROLLERS: Final = (TOPIC, CLIENT_METRICS, GROUP)


class Resource(Protocol):
    resource_type: int
    resource_name: str


class Answered(Protocol):
    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)


class Checked(Generic[R]):
    """The resources of one request, sorted into those answered here and those that go on."""

    def __init__(self, resources: Sequence[R], check: Callable[[R], bool]) -> None:
        """`check` says whether a resource is done with, or raises RemoteError."""
        self._resources = resources
        self._done: dict[int, RemoteError | None] = {}
        seen: dict[tuple[int, str], int] = {}
        for at, resource in enumerate(resources):
            first = seen.setdefault((resource.resource_type, resource.resource_name), at)
            if first != at:
                twice = RemoteError(ErrorCode.INVALID_REQUEST, "a resource may be changed once in a request")
                self._done[first] = self._done[at] = twice
        for at, resource in enumerate(resources):
            if at in self._done:
                continue
            try:
                if check(resource):
                    self._done[at] = None
            except RemoteError as error:
                self._done[at] = error

    @property
    def remaining(self) -> list[R]:
        return [resource for at, resource in enumerate(self._resources) if at not in self._done]

    def results(self, answers: Iterable[Answered] | RemoteError) -> list[tuple[R, int, str | None]]:
        """Every resource with its error code and message, given the controller's answers about the remaining ones."""
        answered: dict[tuple[int, str], tuple[int, str | None]] = {}
        if not isinstance(answers, RemoteError):
            answered = {
                (each.resource_type, each.resource_name): (each.error_code, each.error_message) for each in answers
            }
        results: list[tuple[R, int, str | None]] = []
        for at, resource in enumerate(self._resources):
            if at in self._done:
                error = self._done[at]
            elif isinstance(answers, RemoteError):
                error = answers
            else:
                missing = (int(ErrorCode.UNKNOWN_SERVER_ERROR), None)
                results.append((resource, *answered.get((resource.resource_type, resource.resource_name), missing)))
                continue
            if error is None:
                results.append((resource, int(ErrorCode.NONE), None))
            else:
                results.append((resource, int(error.code), error.message or None))
        return results


def check_keys(names: Sequence[str], null_names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        raise RemoteError(ErrorCode.INVALID_REQUEST, "a config may be changed once in a resource")
    if null_names:
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"these configs need a value, not null: {', '.join(null_names)}")


def check_broker_resource(
    broker: "Broker", resource: Resource, changed: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    """Checks what a broker's settings, or those of all, would become; `changed` makes them from what they are."""
    name = resource.resource_name
    if name:
        check_this_node(broker, name)
    stored = broker.image.config(BROKER, str(broker.node_id) if name else "")
    view = ConfigView(broker.config.given, broker.image, broker.node_id)
    check_broker_change(view, not name, changed(stored))


def check_this_node(broker: "Broker", name: str) -> None:
    """RemoteError where a resource's name is not the id of this node."""
    if not is_whole_number(name):
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"'{name}' is no node's id, which is a number")
    if int(name) != broker.node_id:
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"this is node {broker.node_id}, not {int(name)}")


def check_type(resource_type: int) -> None:
    if resource_type not in _CONTROLLERS:
        raise RemoteError(ErrorCode.INVALID_REQUEST, f"there are no configs of type {resource_type}")
