"""The errors of coget for the exceptions of `plain`, httpx, httpcore and ssl during a request."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from coalloc.engine.http.messages import NotHTTP
from coalloc.engine.http.plain import Disconnected
from coalloc.errors import ConnectionLost, NotThatProtocol, PermissionRefused, SourceError, Unsupported

if TYPE_CHECKING:
    import ssl

__all__ = ["FailedRequest"]


class FailedRequest(NamedTuple):
    """A request that failed.

    :param shown: name of its URL in messages
    :param hidden: function that removes secrets from the text of a server or a library
    :param remedy: function that returns the remedy if the server refuses the client certificate
    """

    shown: str
    hidden: Callable[[object], str]
    remedy: Callable[[], str]

    def error(self, error: Exception) -> Exception:
        """Return coget's error for an exception; any other exception unchanged."""
        match error:
            case NotHTTP():
                return self._not_http(error)
            case Disconnected():
                return self._lost(error)
        return self._of_library(error)

    def _of_library(self, error: Exception) -> Exception:
        import ssl

        import httpcore
        import httpx

        match error:
            case ssl.SSLCertVerificationError():
                return PermissionRefused(
                    f"{self.shown}: the server's certificate is not trusted: {self.hidden(error.verify_message)}",
                    "set SSL_CERT_FILE to the certificate of its authority; if it has expired, tell its admin",
                )
            case ssl.SSLError() if "ALERT" in (error.reason or "") and "CERTIFICATE" in (error.reason or ""):
                return self._certificate_refused(error)
            case ssl.SSLError() | httpcore.LocalProtocolError():
                return self._not_http(error)
            case httpcore.RemoteProtocolError():
                return self._protocol_error(str(error))
            case httpcore.NetworkError() | OSError():
                return self._lost(error)
            case httpcore.ProxyError():
                what = f"{self.shown}: the proxy says {self.hidden(error)}"
                return PermissionRefused(what, "check HTTP_PROXY and NO_PROXY")
            case httpx.HTTPError() | httpx.InvalidURL():
                return Unsupported(
                    f"{self.shown}: invalid URL or redirect: {self.hidden(error)}",
                    "check the URL, or use another replica",
                )
        return error

    def _certificate_refused(self, error: "ssl.SSLError") -> PermissionRefused:
        """Return the error for a server that wants another client certificate, or one at all."""
        what = f"{self.shown}: the server refuses the client certificate: {error.reason.lower().replace('_', ' ')}"
        return PermissionRefused(what, self.remedy())

    def _protocol_error(self, reason: str) -> SourceError:
        if "disconnected" in reason or "closed connection" in reason:
            return self._lost(reason)
        return self._not_http(reason)

    def _not_http(self, reason: object) -> NotThatProtocol:
        what = f"{self.shown}: not an HTTP server: {self.hidden(reason)}"
        return NotThatProtocol(what, "check scheme and port of the URL")

    def _lost(self, reason: object) -> ConnectionLost:
        """Return the error for a closed or reset connection; a server of another protocol may cause either."""
        return ConnectionLost(
            f"{self.shown}: the connection was lost: {self.hidden(reason)}",
            "try again; if this happens every time, check scheme and port of the URL",
        )
