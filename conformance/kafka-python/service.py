"""Replaces a helper module that kafka-python's source distribution leaves out: an external broker."""


class ExternalService:
    """The broker under test: already running, so there is nothing to start or stop."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """Nothing to do: the broker runs already."""

    def close(self) -> None:
        """Nothing to do: the broker keeps running."""

    stop = close


class SpawnedService:
    """Tests that start a broker of their own are excluded; reaching this is an error."""

    def __init__(self, *_: object) -> None:
        raise RuntimeError("this run tests an external broker and starts none")
