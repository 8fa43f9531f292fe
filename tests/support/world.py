"""The world of the docs: a machine and a network in which the commands of the pages work as printed.

    with World(tmp_path / "world") as world, closing(world.shell(home)) as shell:
        shell.run("coget ftp://a.example/x")

It has the hosts that the pages name. Each is a GridFTP server, with and without certificates, a web server and an SSH
server, at the usual ports. All serve the root directory of the world, which also has the files that the pages name.
The world is a network, mount and process namespace, which needs root. It ends with its last process, and its files
are in memory.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from tests.support.ending import guarded, kill_group
from tests.support.gridftp import need_gridftp
from tests.support.gsi import Authority
from tests.support.listening import wait_until_listening
from tests.support.programs import with_this_checkout
from tests.support.shell import Shell
from tests.support.waiting import PATIENCE

__all__ = ["World"]

HOUSE = Path(__file__).parents[2]
SETUP = Path(__file__).with_suffix(".sh")
HERE = "192.0.2.7"
"""Address of the machine on which the commands run."""
FIXED = {"localhost": "127.0.0.1", "db.example": "127.0.0.1", "depot-a.example": "192.0.2.10", "here.example": HERE}
EXAMPLES = (
    *("a", "b", "c", "d", "e", "desk", "near", "slow", "mirror", "ftp", "web", "host", "dtn1", "broker"),
    *("cern", "door", "pool7", "depot-b", "iam", "hook"),
)
OTHERS = ("se.example.org", "mail.example.org", "g-1a2b3c.0ed28.75bc.data.globus.org")
HOSTS = [*("a", "b", "c"), *(f"{name}.example" for name in EXAMPLES), *OTHERS]
ADDRESS = "11.0.0.{}"
"""Addresses of the hosts: programs take them for public ones, but nothing leaves the namespace."""
PORTS = (21, 22, 80, 443, 2811)
WEB = """
server {
    listen 80 default_server;
    listen 443 ssl default_server;
    listen 2880 ssl default_server;
    ssl_certificate /etc/ssl/broker.example.pem;
    ssl_certificate_key /etc/ssl/private/broker.example.key;
    root /;
    autoindex on;
}
server {
    listen 80;
    server_name slow.example;
    root /;
    limit_rate 50k;
}
"""


NAMESPACES = ["unshare", "--net", "--mount", "--uts", "--pid", "--propagation", "private", "--fork", "--kill-child"]


def _need_namespaces() -> None:
    """Skip the test if no world can be made here."""
    tried = subprocess.run([*NAMESPACES, "mount", "-t", "tmpfs", "tried", "/mnt"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"no world of the docs here: {tried.stderr.decode().strip()}")
    need_gridftp()


class World:
    """A running world.

    :param folder: directory for its files
    :param broker: nginx configuration of the host broker.example
    :ivar shared: directory that is seen in the world, too
    """

    def __init__(self, folder: Path, broker: str) -> None:
        self.shared = folder / "shared"
        _need_namespaces()
        self._names = {name: ADDRESS.format(number) for number, name in enumerate(HOSTS, 10)} | FIXED
        self.shared.mkdir()
        self._prepare(broker)
        root = folder / "root"
        root.mkdir()
        seen = [HOUSE, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve(), self.shared]
        command = [*NAMESPACES, "bash", SETUP, root, self.shared / "grid", self.shared / "hosts", *seen]
        self._log = folder / "setup.log"
        with self._log.open("w") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            self.process = guarded(subprocess.Popen(command, **pipes, start_new_session=True))  # type: ignore[call-overload]
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            self.close()
            raise RuntimeError(f"the world of the docs did not start: {self._log.read_text()}")
        (self._init,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for port in PORTS:
            if not wait_until_listening(self.process, "0.0.0.0", port, PATIENCE):
                self.close()
                raise RuntimeError(f"no server at port {port}: {self._log.read_text()}")

    def _prepare(self, broker: str) -> None:
        grid = Authority(self.shared / "grid")
        names = ",".join(f"DNS:{name}" for name in self._names)
        grid.host("a.example", names)
        grid.revoke()
        ann = grid.user("ann")
        grid.map(ann)
        shutil.copy(ann.proxy().certificate, grid.place / "robot-proxy.pem")
        shutil.copy(grid.authority.certificate, grid.place / "authority.pem")
        (grid.place / "nginx").mkdir()
        (grid.place / "nginx/broker.conf").write_text(broker)
        (grid.place / "nginx/web.conf").write_text(WEB)
        self.ann = ann
        lines = (f"{address} {name}\n" for name, address in self._names.items())
        (self.shared / "hosts").write_text("".join(lines))

    def shell(self, user: str, **environment: str) -> Shell:
        """Return a shell of root in the world, with a new home directory, which is that directory of `shared`."""
        home = self.shared / user
        home.mkdir()
        (home / ".globus").mkdir()
        for file, name in ((self.ann.certificate, "usercert.pem"), (self.ann.key, "userkey.pem")):
            shutil.copy(file, home / ".globus" / name)
            (home / ".globus" / name).chmod(0o600)
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin"
        own = {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb"}
        certificates = {"SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
        enter = ["nsenter", "-t", self._init, "-n", "-m", "-u", "-p", "-r"]
        start = ["unshare", "--mount", "sh", "-c", f"cd / && mount --bind {home} /root && cd && exec bash"]
        return Shell([*enter, *start], with_this_checkout({**own, **certificates, **environment}))

    def close(self) -> None:
        """End all processes of the world."""
        kill_group(self.process)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
