"""The servers of a small Pelican federation on loopback, over TLS: the discovery document and the director.

It speaks what Pelican documents: a redirect whose Link header names the caches, and headers about tokens.
"""

import json
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.gsi import Identity

__all__ = ["FederationServer", "federation_server"]

DISCOVERY = "/.well-known/pelican-configuration"


@dataclass
class FederationServer:
    """The answers of a federation; `asked` has all requests.

    :param servers: its caches, the nearest first: URLs without the path of an object
    :param objects: paths of the objects that it has
    :param headers: further headers of the director
    :param status: status of the director's answer to a known object
    :param document: replaces the discovery document
    """

    host: str
    servers: Sequence[str] = ()
    objects: Sequence[str] = ("/ns/data.bin",)
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 307
    document: bytes | None = None
    asked: list[str] = field(default_factory=list)

    def url(self, path: str) -> str:
        """Return the URL of an object."""
        return f"pelican://{self.host}{path}"

    def answer(self, method: str, target: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer to a request."""
        self.asked.append(f"{method} {target}")
        path, mark, query = target.partition("?")
        if path == DISCOVERY:
            plain = {"director_endpoint": f"https://{self.host}", "jwks_uri": f"https://{self.host}/.well-known/jwks"}
            return 200, {}, json.dumps(plain).encode() if self.document is None else self.document
        if path not in self.objects:
            reason = {"status": "error", "msg": "Object not found at any cache"}
            return 404, {"Content-Type": "application/json"}, json.dumps(reason).encode()
        links = (
            f'<{server}{path}>; rel="duplicate"; pri={i}; depth=1' for i, server in enumerate(self.servers, start=1)
        )
        location = f"{self.servers[0]}{path}{mark}{query}" if self.servers else ""
        named = {"Link": ", ".join(links), "Location": location} if self.status == 307 else {}
        namespace = {"X-Pelican-Namespace": "namespace=/ns, require-token=false"}
        return self.status, {**named, **namespace, **self.headers}, b""


@contextmanager
def federation_server(identity: Identity) -> Iterator[FederationServer]:
    """Run a federation's server with this certificate; its answers can be changed at any time."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = federation.answer(self.command, self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_PROPFIND = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.certificate, identity.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    federation = FederationServer(f"127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield federation
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
