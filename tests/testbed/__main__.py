"""A WAN for experiments: `python -m tests.testbed TOPOLOGY` starts one and opens a prompt. Needs root.

    wan> client ping -c3 s1
    wan> set core-s1 rate=40mbit loss=1%

The WAN ends with the prompt. Commands may also come from a file or a pipe. docs/howto/testbed.md explains them.
"""

import argparse
import cmd
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.testbed import driver, servers
from tests.testbed.topology import DIRECTIONS, Topology, TopologyError
from tests.testbed.units import show_duration, show_rate
from tests.testbed.wan import Invalid, Wan

HELP = """HOST COMMAND ...                     run a command in a host: client ping -c3 s1; client bash
serve HOST FOLDER                    start a GridFTP and a web server in a host; print the URLs of its files
set LINK [ab|ba] NAME=VALUE ...      change a link: set core-s1 ba rate=40mbit loss=1%
stats                                show the counters of the links since the last `stats`
quit                                 end the WAN and all processes in it; the end of input does the same"""


class Prompt(cmd.Cmd):
    """A prompt that reads commands and carries them out, until the end of input."""

    def __init__(self, wan: Wan, stack: ExitStack) -> None:
        super().__init__()
        self.prompt = "wan> " if sys.stdin.isatty() else ""
        self.use_rawinput = sys.stdin.isatty()
        self._wan, self._stack, self._console = wan, stack, Console()

    def show(self) -> None:
        """Print the hosts and links."""
        hosts = "  ".join(f"{host} {self._wan.address(host)}" for host in self._wan.topology.hosts)
        print(f"Hosts: {hosts}\n")
        table = Table("link", "direction", "rate", "delay", "queue", "loss")
        for link in self._wan.topology.links:
            for way, (first, second) in zip(DIRECTIONS, ((link.a, link.b), (link.b, link.a)), strict=True):
                does = link.ab if way == "ab" else link.ba
                words = show_rate(does.rate), show_duration(does.delay), f"{does.queue / 1e3:.0f} kB", f"{does.loss:g}"
                table.add_row(link.name, f"{way}: {first} to {second}", *words)
        self._console.print(table)
        print(f"\n{HELP}\n")

    def do_serve(self, line: str) -> None:
        """serve HOST FOLDER"""
        match line.split():
            case [host, folder]:
                root = Path(folder).expanduser().resolve()
                print(self._stack.enter_context(servers.gridftp(self._wan, host, root)).url("FILE"))
                print(self._stack.enter_context(servers.nginx(self._wan, host, root)).url("FILE"))
            case _:
                print("write: serve HOST FOLDER")

    def do_set(self, line: str) -> None:
        """set LINK [ab|ba] NAME=VALUE ..."""
        link, *rest = line.split() or [""]
        direction = rest.pop(0) if rest and rest[0] in DIRECTIONS else None
        pairs = [word.partition("=") for word in rest]
        self._wan.set(link, direction, **{name: value for name, _, value in pairs})

    def do_stats(self, _: str) -> None:
        """stats"""
        table = Table("link", "direction", "packets", "MB", "queue full", "lost", "late")
        for (link, way), did in self._wan.stats().items():
            numbers = did.packets, f"{did.bytes / 1e6:.1f}", did.queue_drops, did.loss_drops, did.late
            table.add_row(link, way, *map(str, numbers))
        self._console.print(table)
        try:
            self._wan.check()
        except Invalid as error:
            print(f"These numbers are not valid: {error}.")
        self._wan.reset_stats()

    def do_help(self, _: str) -> None:
        """help"""
        print(HELP)

    def do_quit(self, _: str) -> bool:
        """quit"""
        return True

    do_EOF = do_quit

    def emptyline(self) -> bool:
        """Do nothing; the base class would repeat the last command."""
        return False

    def default(self, line: str) -> None:
        """HOST COMMAND ..."""
        host, *command = shlex.split(line)
        if host not in self._wan.topology.hosts or not command:
            print(f"neither a command nor a host with a command: {host}\n{HELP}")
            return
        # The next lines of a script are for the prompt, not for this command.
        stdin = None if sys.stdin.isatty() else subprocess.DEVNULL
        subprocess.run(self._wan.command(host, command), stdin=stdin, check=False)

    def onecmd(self, line: str) -> bool:
        """Run one command; print its errors, and keep the WAN up."""
        try:
            return bool(super().onecmd(line))
        except (TopologyError, ValueError, OSError, RuntimeError) as error:
            print(error)
        except KeyboardInterrupt:  # Ctrl-C is meant for the running command
            print()
        return False


def main() -> int:
    """Start a WAN and read commands; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__.splitlines()[0])
    parser.add_argument("topology", help="a name (far, hetero, ...) or the path of a YAML file")
    topology = parser.parse_args().topology
    if reason := driver.refusal():
        print(f"this machine cannot run a WAN: {reason}", file=sys.stderr)
        return 1
    try:
        wan = Wan(Topology.load(topology))
    except TopologyError as error:
        print(error, file=sys.stderr)
        return 2
    with wan, ExitStack() as stack:
        prompt = Prompt(wan, stack)
        if sys.stdin.isatty():
            prompt.show()
        prompt.cmdloop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
