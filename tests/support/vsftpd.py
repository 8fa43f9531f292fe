"""A real vsftpd on loopback; with a certificate, it requires TLS, and that data connections resume a session.

It serves the whole file system to anonymous users, as the user who runs the tests.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.support.loopback_server import LoopbackServer, installed

__all__ = ["Vsftpd"]

CONF = """
listen=YES
background=NO
listen_address={host}
listen_port={port}
run_as_launching_user=YES
seccomp_sandbox=NO
isolate=NO
isolate_network=NO
secure_chroot_dir={run}
xferlog_enable=NO
anonymous_enable=YES
no_anon_password=YES
anon_root={root}
anon_world_readable_only=NO
"""
TLS = """
ssl_enable=YES
implicit_ssl={implicit}
allow_anon_ssl=YES
force_anon_logins_ssl=YES
force_anon_data_ssl=YES
require_ssl_reuse=YES
ssl_ciphers=HIGH
rsa_cert_file={certificate}
rsa_private_key_file={key}
"""


class Vsftpd(LoopbackServer):
    """One running server, ready when constructed; further parameters are those of `LoopbackServer`.

    :param certificate: files of certificate and key; none for connections without TLS
    :param implicit: whether connections begin with TLS
    :param prefix: a command that replaces itself (exec) by the server's command
    """

    def __init__(
        self,
        root: Path,
        run: Path,
        certificate: Sequence[Path] = (),
        *,
        implicit: bool = False,
        host: str = "127.0.0.1",
        port: int = 0,
        prefix: Sequence[str] = (),
    ) -> None:
        program = installed("vsftpd", "vsftpd")
        super().__init__(root, run, host, port)
        self.scheme = "ftp" if not certificate else "ftps" if implicit else "ftpes"
        text = CONF.format(host=host, port=self.port, run=run, root=root)
        if certificate:
            pem, key = certificate
            text += TLS.format(implicit="YES" if implicit else "NO", certificate=pem, key=key)
        conf = run / "vsftpd.conf"
        conf.write_text(text.replace("\n\n", "\n").lstrip())
        self._start([program, str(conf)], prefix)

    def url(self, path: str, scheme: str | None = None) -> str:
        """Return the URL of the file `path` below the root; it is absolute in the file system."""
        return super().url(str(self.root / path).removeprefix("/"), scheme)
