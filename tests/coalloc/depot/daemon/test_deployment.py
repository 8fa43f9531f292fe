"""The systemd unit and the container image of a depot: linted, and their commands relay under their restrictions."""

import json
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from coalloc.depot import create_connection
from coalloc.depot.daemon.cli import depot
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute, DepotTicket
from tests.support.confined import confined, said
from tests.support.depot import DEPOT, LOOPBACK
from tests.support.waiting import PATIENCE

DEPLOY = Path(__file__).parents[4] / "deploy"
UNIT = DEPLOY / "coget-depot.service"
RECIPE = DEPLOY / "depot.Dockerfile"
CONTAINER = """
[Service]
WorkingDirectory={folder}
ProtectSystem=strict
ProtectHome=yes
CapabilityBoundingSet=
NoNewPrivileges=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
SystemCallFilter=@system-service
"""
"""A container's resources with `--read-only --cap-drop ALL --security-opt no-new-privileges`."""
SECRET = "0123456789abcdef0123456789abcdef"


def command_of_the_unit() -> list[str]:
    (command,) = said(UNIT, "ExecStart")
    program, *words = shlex.split(command)
    assert program.endswith("/coget-depot")
    return words


def command_of_the_container() -> list[str]:
    (command,) = re.findall("^ENTRYPOINT (.*)$", RECIPE.read_text(), re.MULTILINE)
    program, *words = json.loads(command)
    assert program == "coget-depot"
    return [*words, "--secret-file", "%d/secret", "--name", "NAME"]


@pytest.mark.parametrize("words", [command_of_the_unit, command_of_the_container])
def test_a_restricted_depot_relays(words, tmp_path, server):
    unit, state = UNIT, tmp_path / "state"
    if words is command_of_the_container:
        recipe = RECIPE.read_text()
        (user,), (folder,) = (re.findall(f"^{word} (.*)$", recipe, re.M) for word in ("USER", "WORKDIR"))
        assert int(user) > 0
        unit = tmp_path / "container.service"
        unit.write_text(CONTAINER.format(folder=folder))
    (state / "credentials").mkdir(parents=True)
    secret = state / "credentials" / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o400)
    ticket = _ticket(secret)
    given = [word.replace("%d", str(secret.parent)) for word in words()]
    errors = tmp_path / "errors"
    with errors.open("w") as file:
        running = subprocess.Popen(
            [*confined(unit, state), str(DEPOT), *given, "--listen", "127.0.0.1:0", *LOOPBACK],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    try:
        line = running.stdout.readline()
        assert line, errors.read_text()
        _relay(HostPort.parse(line.split()[-1]), ticket, server)
        running.terminate()
        assert running.wait(PATIENCE) == 0
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
    assert '"user": "ann"' in errors.read_text()


def _ticket(secret: Path) -> DepotTicket:
    words = ["ticket", "--secret-file", str(secret), "--name", "NAME", "--user", "ann", "--destinations", "127.0.0.1"]
    printed = dict(re.findall('^(.*) = "(.*)"$', CliRunner().invoke(depot, words).stdout, re.MULTILINE))
    return DepotTicket(printed["ticket"], bytes.fromhex(printed["key"]))


def _relay(place: HostPort, ticket: DepotTicket, server: socket.socket) -> None:
    route = DepotRoute((place,), tickets={place: ticket})
    with create_connection(server.getsockname(), PATIENCE, route=route) as client, server.accept()[0] as there:
        client.sendall(b"there")
        assert there.recv(100) == b"there"
        there.sendall(b"and back")
        assert client.recv(100) == b"and back"


def test_the_linter_finds_nothing_in_the_recipe():
    linter = Path(sys.executable).with_name("hadolint")
    found = subprocess.run([linter, "--no-color", RECIPE], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "")
