"""Real servers in the hosts of a WAN, each ready when returned and ended by its `with` block, or with the WAN.

    with Wan(topology) as wan, servers.gridftp(wan, "s1", folder) as server:
        subprocess.run(wan.command("client", ["coget", server.url("data.bin")]))
        server.kill()

They are those of `tests.support`; here it is said how they run in a host. Each host has its own ports, so that
web servers and xrootd have their usual ones. URLs have addresses, which nobody has to look up.
"""

import itertools
from pathlib import Path

from tests.support.gridftp import GridFTPServer
from tests.support.gsi import Identity
from tests.support.nginx import Nginx
from tests.support.xrootd import XRootD
from tests.testbed.wan import Wan

__all__ = ["gridftp", "nginx", "xrootd"]

LIFE_SECONDS = 4 * 3600  # the WAN ends them; this is for a machine on which even its guardian was killed
_numbers = itertools.count()


def gridftp(wan: Wan, host: str, folder: Path) -> GridFTPServer:
    """A globus-gridftp-server with anonymous read access to `folder`."""
    address = wan.address(host)
    # GLOBUS_HOSTNAME: otherwise the server looks up its machine's name, which no host of a WAN knows.
    env = {"GLOBUS_HOSTNAME": address}
    return GridFTPServer(folder, address, env, prefix=wan.command(host, []), life=LIFE_SECONDS)


def nginx(wan: Wan, host: str, folder: Path, tls: Identity | None = None) -> Nginx:
    """A web server of `folder`, at port 80; with a certificate, which must name the host's address, https at 443."""
    return Nginx(
        folder,
        _run_folder(wan, "nginx"),
        host=wan.address(host),
        port=443 if tls else 80,
        certificate=(tls.certificate, tls.key) if tls else (),
        prefix=wan.command(host, []),
        life=LIFE_SECONDS,
    )


def xrootd(wan: Wan, host: str, folder: Path) -> XRootD:
    """An xrootd with anonymous read access to `folder`, at port 1094."""
    run = _run_folder(wan, "xrootd")
    return XRootD(folder, run, host=wan.address(host), prefix=wan.command(host, []), life=LIFE_SECONDS)


def _run_folder(wan: Wan, program: str) -> Path:
    return wan.folder / f"{program}-{next(_numbers)}"
