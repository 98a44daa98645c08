"""What a handler knows of a request besides its body."""


class RequestContext:
    __slots__ = ("api_key", "api_version", "body_at", "client_id", "correlation_id", "listener_name", "peer")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str,
        body_at: int,
        listener_name: str,
        peer: str,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_at = body_at
        """Where the body begins in the frame."""
        self.listener_name = listener_name
        self.peer = peer

    @property
    def client_host(self) -> str:
        """The peer's address as Kafka shows it, with a slash before it."""
        return "/" + self.peer.rpartition(":")[0]
