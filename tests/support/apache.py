"""A real Apache with WebDAV on loopback, with its own configuration; it reads no configuration of the machine."""

import os
from collections.abc import Sequence
from pathlib import Path

from tests.support.loopback_server import LoopbackServer, installed
from tests.support.xrootd import NOBODY

__all__ = ["Apache"]

MODULES = "/usr/lib/apache2/modules"
CONF = """
ServerRoot {run}
PidFile {run}/pid
ErrorLog {run}/error.log
DefaultRuntimeDir {run}
ServerName localhost
Listen {host}:{port}
StartServers 1
KeepAliveTimeout 60
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
LoadModule dav_module {modules}/mod_dav.so
LoadModule dav_fs_module {modules}/mod_dav_fs.so
DavLockDB {run}/lock
DocumentRoot {root}
<Directory {root}>
  Dav On
  Require all granted
  <LimitExcept GET HEAD PROPFIND OPTIONS>
    Require all denied
  </LimitExcept>
</Directory>
"""


class Apache(LoopbackServer):
    """One running server, ready when constructed; the parameters are those of `LoopbackServer`.

    :param prefix: a command that replaces itself (exec) by the server's command
    """

    scheme = "dav"

    def __init__(
        self, root: Path, run: Path, *, host: str = "127.0.0.1", port: int = 0, prefix: Sequence[str] = ()
    ) -> None:
        program = installed("apache2", "apache2-bin")
        super().__init__(root, run, host, port)
        run.chmod(0o777)
        conf = run / "httpd.conf"
        conf.write_text(CONF.format(run=run, root=root.resolve(), host=host, port=self.port, modules=MODULES))
        become = NOBODY.split() if os.geteuid() == 0 else []  # apache refuses to serve as root
        self._start([*become, program, "-D", "FOREGROUND", "-f", str(conf)], prefix)
