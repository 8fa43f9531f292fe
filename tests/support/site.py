"""The broker of the docs' world: https://broker.example, with the collections of the pages, and users Ann and Bob.

site = Site(world)
shell = site.shell("reader")       # of Ann; `ADMIN_TOKEN` and `ANN_TOKEN` are the tokens that she was given
"""

import shlex
from pathlib import Path

from tests.support import globus
from tests.support.browser import program
from tests.support.pages import blocks
from tests.support.shell import Shell
from tests.support.waiting import wait_until
from tests.support.world import World

__all__ = ["CURL", "Site"]

HOWTO = Path(__file__).parents[2] / "docs/howto"
CURL = 'curl() { command curl --silent --show-error --fail-with-body "$@"; }'
"""A curl that ends with an error if the server refuses the request."""
SERVE = "coget-broker serve --config broker.toml --site CERN --public-url https://broker.example & SERVED=$!"
PERMIT = (
    '{"principal_type": "identity", "principal": "ann", "path": "/public/", "permissions": "r"}',
    '{"principal_type": "identity", "principal": "ann", "path": "/run1/", "permissions": "r"}',
)
SECTIONS = ("[credentials", "[proxy")
"""Sections of broker.toml on the pages that this broker has."""


class Site:
    """The broker; it starts with the first shell of a user, and runs until `stop`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._shell = world.shell("site")
        self._begin = -1
        self._tokens: dict[str, str] = {}
        self._shell.run(CURL)

    def start(self) -> None:
        """Start the broker, if it does not run; at the first time, make its catalogue and collections."""
        if self._begin >= 0:
            return
        pages = [block for page in ("broker", "collections") for block in blocks(HOWTO / f"{page}.md")]
        settings = "\n".join(block.text for block in pages if block.text.startswith(SECTIONS))
        self._run(f"printf %s {shlex.quote(settings)} > broker.toml")
        self._begin = len(self._shell.lines)
        self._run(SERVE)
        wait_until(lambda: any("running on" in line for line in self._shell.lines[self._begin :]))
        if self._tokens:
            return
        self._run("B=http://127.0.0.1:8642/broker/v1; TOKEN=$(cat coget-broker.sqlite.admin-token)")
        self._run('H="Authorization: Bearer $TOKEN"; J="Content-Type: application/json"')
        for command in (each for block in pages if block.kind == "commands" for each in block.commands):
            if "-X PUT $B/" in command or "format=checksums" in command or "/rules -d" in command:
                self._run(command)
        for rule in PERMIT:
            self._run(f'curl -H "$H" -H "$J" $B/collections/tape/rules -d \'{rule}\'')
        self._run("coget-broker token create ann --role transfer --site CERN > ann")
        self._run("coget-broker token create bob --role transfer > bob")
        home = self._world.shared / "site"
        self._tokens["ADMIN_TOKEN"] = (home / "coget-broker.sqlite.admin-token").read_text().strip()
        self._tokens["ANN_TOKEN"] = (home / "ann").read_text().strip()

    def _run(self, command: str) -> None:
        begin = len(self._shell.lines)
        status = self._shell.run(command)
        assert status == 0, "\n".join([command, *self._shell.lines[begin:]])

    def stop(self) -> None:
        """End the broker with SIGTERM."""
        if self._begin >= 0:
            self._run("kill $SERVED; wait $SERVED; [ $? = 143 ]")
        self._begin = -1

    def shell(self, user: str) -> Shell:
        """Return a shell of Ann, whose coget and browser know the broker, on the machine of its database."""
        self.start()
        ann = self._tokens["ANN_TOKEN"]
        database = f"sqlite:///{self._world.shared}/site/coget-broker.sqlite"
        browser = program(self._world.shared / f"{user}-cookies.json", ann)
        shell = self._world.shell(user, COGET_BROKER_DATABASE=database, BROWSER=browser, **self._tokens)
        folder = self._world.shared / user / ".config/coget"
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text('broker = "https://broker.example"\n')
        (folder / "tokens.toml").touch(0o600)
        (folder / "tokens.toml").write_text(f'"broker.example" = "{ann}"\n')
        shell.run(f"PATH=$PATH:{globus.made('cli')}; {CURL}")
        return shell

    def close(self) -> None:
        """End the broker abruptly."""
        self._shell.close()
