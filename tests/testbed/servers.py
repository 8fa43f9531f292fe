"""Real servers in the hosts of a WAN. Each is up within its `with` block, and ends with the WAN at the latest.

    with Wan(topology) as wan, servers.gridftp(wan, "s1", directory) as server:
        subprocess.run(wan.command("client", ["coget", server.url("data.bin")]))
        server.kill()

They are the servers of `tests.support`, started in a host. Each host has its own ports, so web servers and xrootd use
their standard ports. URLs contain addresses, so no name has to be resolved.
"""

import itertools
from pathlib import Path

from tests.support.gridftp import GridFTPServer
from tests.support.gsi import Identity
from tests.support.nginx import Nginx
from tests.support.xrootd import XRootD
from tests.testbed.wan import Wan

__all__ = ["gridftp", "nginx", "xrootd"]

LIFE_SECONDS = 4 * 3600  # in case even the WAN's guardian was killed, which otherwise ends them
_numbers = itertools.count()


def gridftp(wan: Wan, host: str, folder: Path) -> GridFTPServer:
    """Return a globus-gridftp-server with anonymous access to `folder`."""
    address = wan.address(host)
    # Without GLOBUS_HOSTNAME, the server resolves the machine's name, which is unknown in a WAN.
    env = {"GLOBUS_HOSTNAME": address}
    return GridFTPServer(folder, address, env, prefix=wan.command(host, []), life=LIFE_SECONDS)


def nginx(wan: Wan, host: str, folder: Path, tls: Identity | None = None) -> Nginx:
    """Return a web server of `folder`: at port 80, or with TLS at port 443.

    :param tls: certificate and key for TLS; the certificate must name the host's address
    """
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
    """Return an xrootd with anonymous read access to `folder`, at port 1094."""
    run = _run_folder(wan, "xrootd")
    return XRootD(folder, run, host=wan.address(host), prefix=wan.command(host, []), life=LIFE_SECONDS)


def _run_folder(wan: Wan, program: str) -> Path:
    return wan.folder / f"{program}-{next(_numbers)}"
