"""Sessions with the header of `session_header`, a depot's side. Pure."""

from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.opening import Opening
from coalloc.depot.protocol.session_header import Answer, SessionHeader

__all__ = ["LogisticalSession"]


class LogisticalSession:
    """The messages of one client, or of the depot before this one."""

    def __init__(self) -> None:
        self._data = b""
        self._header: SessionHeader | None = None

    def receive(self, data: bytes) -> tuple[bytes, Opening | None]:
        """Process bytes from the client.

        :returns: bytes to send, and the opening once it is complete
        :raises DepotFailure: if they are malformed
        """
        self._data += data
        decoded = SessionHeader.decode(self._data)
        if decoded is None:
            return b"", None
        self._header, rest = decoded
        return b"", Opening(self._header.request.destination, self._header.passes[0].ticket, rest, self._header)

    def accepted(self, legs: tuple[float, ...]) -> bytes:
        """Return the answer once the destination is connected.

        :param legs: seconds that this connection, and those of the depots that follow, took
        """
        return Answer(None, legs).encode()

    def refused(self, failure: DepotFailure) -> bytes:
        """Return the answer to a client whose session failed."""
        hop = self._header.hop if self._header else 0
        return Answer(DepotFailure(failure.code, failure.message, hop if failure.hop is None else failure.hop)).encode()
