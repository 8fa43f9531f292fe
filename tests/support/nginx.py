"""A real nginx on loopback, with its own configuration; it reads no configuration of the machine."""

import os
from collections.abc import Sequence
from pathlib import Path

from tests.support.loopback_server import LIFE_SECONDS, LoopbackServer, installed

__all__ = ["Nginx"]

CONF = """
daemon off; master_process off; worker_processes 1; pid {run}/nginx.pid; error_log {run}/error.log; {user}
events {{ worker_connections 64; }}
http {{
    access_log off; sendfile on; keepalive_timeout 60; types {{ }} default_type application/octet-stream;
    client_body_temp_path {run}/a; proxy_temp_path {run}/b; fastcgi_temp_path {run}/c;
    uwsgi_temp_path {run}/d; scgi_temp_path {run}/e;
    {zones}
    server {{ listen {host}:{port}{ssl}; root {root}; {certificates} {more} }}
}}
"""


class Nginx(LoopbackServer):
    """One running server, ready when constructed; further parameters are those of `LoopbackServer`.

    :param certificate: files of certificate and key, for https
    :param more: directives for the server block
    :param zones: directives for the http block, such as zones for limits
    :param prefix: a command that replaces itself (exec) by the server's command
    :param life: seconds after which the server is killed in any case
    """

    def __init__(
        self,
        root: Path,
        run: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        certificate: Sequence[Path] = (),
        more: str = "",
        zones: str = "",
        prefix: Sequence[str] = (),
        life: int = LIFE_SECONDS,
    ) -> None:
        program = installed("nginx", "nginx")
        super().__init__(root, run, host, port)
        self.scheme = "https" if certificate else "http"
        keys = "ssl_certificate {}; ssl_certificate_key {};".format(*certificate) if certificate else ""
        conf = run / "nginx.conf"
        text = CONF.format(
            run=run,
            host=host,
            port=self.port,
            root=root,
            more=more,
            zones=zones,
            ssl=" ssl" if certificate else "",
            certificates=keys,
            user="user root;" if os.geteuid() == 0 else "",
        )
        conf.write_text(text)
        self._start([program, "-p", str(run), "-c", str(conf)], prefix, life)
