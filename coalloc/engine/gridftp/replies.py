"""Formatter of commands and parser of replies of GridFTP servers, with the addresses, features and facts in replies.

No sockets, no clock: `control` passes the received bytes, and `session` interprets replies. RFC 959 (replies),
RFC 2389 (FEAT), RFC 2428 (EPSV), RFC 3659 (MLST), GFD.20 (ERET).
"""

import re
from typing import NamedTuple

from coalloc.errors import LimitExceeded, NotThatProtocol, ServerSays, Unsupported
from coalloc.safe_text import escaped, hide
from coalloc.util.checksums import ALGORITHMS

__all__ = [
    "LineReader",
    "Reply",
    "ReplyReader",
    "command_shown",
    "digest_in",
    "extended_passive_port",
    "facts",
    "features",
    "format_command",
    "passive_address",
    "port_command",
]

BEGINNING = re.compile(rb"[1-6]\d\d([ -]|$)")
HEX = re.compile("[0-9a-f]+")
UNSENDABLE = re.compile(r"[\r\n\0]")
PASSIVE = re.compile(",".join([r"([0-9]{1,3})"] * 6))
EXTENDED = re.compile(r"\(([!-~])\1\1([0-9]{1,5})\1\)")
SECRET = ("PASS", "ACCT", "ADAT", "MIC", "CONF", "ENC", "DCSC")
"""Commands whose arguments are passwords, tokens or credentials."""
TOKEN = re.compile(r"ADAT=\S*")
MAX_LINE = 64 * 1024
MAX_LINES = 10_000
MAX_REPLY = 1024 * 1024
"""Maximum bytes of one reply; the longest legitimate replies, lists of a server's commands, have some kilobytes."""
SHOWN = 400
"""Characters shown of a long reply, half of them from its end, where the reason follows a path."""


class Reply(NamedTuple):
    """A whole reply: its three-digit code, and its lines without the code, which may repeat the session's password."""

    code: int
    lines: tuple[str, ...]
    password: str = ""

    @property
    def preliminary(self) -> bool:
        """Return whether another reply to the same command follows."""
        return self.code < 200

    @property
    def positive(self) -> bool:
        return self.code < 400

    @property
    def text(self) -> str:
        """The reply's text for messages: on one line, short, without tokens, the password and unprintable characters.

        >>> Reply(530, ("not with h%75sh!", "ADAT=c2VjcmV0", "End"), "hush!").text
        'not with ...; ADAT=...'
        """
        words = "; ".join(line for line in self.lines if line and line not in ("End.", "End"))
        words = escaped(hide(TOKEN.sub("ADAT=...", words), secrets=(self.password,)))
        if len(words) > SHOWN:
            words = f"{words[: SHOWN // 2]}...{words[3 - SHOWN // 2 :]}"
        return words


class LineReader:
    """A splitter of received bytes into whole lines, which end with LF or CRLF.

    >>> lines = LineReader()
    >>> lines.feed(b"220 he"), lines.feed(b"llo\\r\\n331 x\\n")
    ([], [b'220 hello', b'331 x'])
    """

    def __init__(self) -> None:
        self._rest = b""

    @property
    def pending(self) -> bool:
        """Return whether an unfinished line has been received."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that this data completes.

        :raises LimitExceeded: when a line is longer than `MAX_LINE`
        """
        data = self._rest + data
        *lines, self._rest = data.replace(b"\r\n", b"\n").split(b"\n")
        if len(data) > MAX_LINE and max(map(len, (*lines, self._rest))) > MAX_LINE:
            raise LimitExceeded(
                f"the server sent a line of more than {MAX_LINE} bytes", "check host and port, or use another replica"
            )
        return lines


class ReplyReader:
    """A parser of lines into whole replies.

    A reply of several lines begins with `ddd-` and ends with the same digits and a space (RFC 959, 4.2).
    """

    def __init__(self) -> None:
        self._code = b""
        self._lines: list[bytes] = []
        self._bytes = 0

    @property
    def pending(self) -> bool:
        """Return whether an unfinished reply has been received."""
        return bool(self._lines)

    def feed(self, line: bytes) -> Reply | None:
        """Return the reply that this line completes, or None.

        :raises NotThatProtocol: when a reply does not begin with three digits, or is too long
        """
        if not self._lines:
            if not BEGINNING.match(line):
                raise NotThatProtocol(f"the server said {_show(line)!r}", "check scheme, host and port of the URL")
            if line[3:4] != b"-":
                return Reply(int(line[:3]), (line[4:].decode("utf-8", "replace"),))
            self._code = line[:3]
            self._lines.append(line[4:])
        elif not line.startswith(self._code):
            self._lines.append(line.strip())
        elif line[3:4] in (b" ", b""):
            self._lines.append(line[4:])
            return self._take()
        else:
            self._lines.append(line[4:] if line[3:4] == b"-" else line.strip())
        self._bytes += len(line)
        if len(self._lines) > MAX_LINES or self._bytes > MAX_REPLY:
            raise NotThatProtocol(
                f"the server sent an endless reply, of more than {MAX_LINES} lines or {MAX_REPLY} bytes",
                "check host and port, or use another replica",
            )
        return None

    def _take(self) -> Reply:
        lines = b"\n".join(self._lines).decode("utf-8", "replace").split("\n")
        self._lines, self._bytes = [], 0
        return Reply(int(self._code), tuple(lines))


def _show(line: bytes) -> str:
    return line[:60].decode("ascii", "replace")


def format_command(command: str) -> bytes:
    """Return a command as bytes, with CRLF.

    :raises Unsupported: when it contains a line break, which would begin a second command, or NUL
    """
    if UNSENDABLE.search(command):
        verb = command.split(" ", 1)[0]
        raise Unsupported(f"a line break or NUL cannot be sent in {verb!r}", "leave it out")
    return command.encode("utf-8", "surrogateescape") + b"\r\n"


def command_shown(command: str) -> str:
    """Return a command without the secrets in it.

    >>> command_shown("PASS hush"), command_shown("SIZE /data/x")
    ('PASS ...', 'SIZE /data/x')
    """
    verb = command.partition(" ")[0]
    return f"{verb} ..." if verb.upper() in SECRET else command


def passive_address(reply: Reply) -> tuple[str, int]:
    """Return host and port of a 227 reply.

    >>> passive_address(Reply(227, ("Entering Passive Mode (127,0,0,1,4,1)",)))
    ('127.0.0.1', 1025)
    """
    if match := PASSIVE.search(" ".join(reply.lines)):
        numbers = [int(group) for group in match.groups()]
        port = numbers[4] * 256 + numbers[5]
        if max(numbers) < 256 and port:
            return ".".join(map(str, numbers[:4])), port
    raise _no_address(reply)


def extended_passive_port(reply: Reply) -> int:
    """Return the port of a 229 reply; the host is that of the control connection.

    >>> extended_passive_port(Reply(229, ("Entering Extended Passive Mode (|||1025|)",)))
    1025
    """
    if (match := EXTENDED.search(" ".join(reply.lines))) and 0 < int(match[2]) < 65536:
        return int(match[2])
    raise _no_address(reply)


def port_command(host: str, port: int) -> str:
    """Return the command (PORT or EPRT) that tells the server the address to connect to.

    >>> port_command("10.0.0.7", 51210), port_command("::1", 51210)
    ('PORT 10,0,0,7,200,10', 'EPRT |2|::1|51210|')
    """
    if ":" in host:
        return f"EPRT |2|{host}|{port}|"
    return f"PORT {host.replace('.', ',')},{port >> 8},{port & 255}"


def _no_address(reply: Reply) -> ServerSays:
    return ServerSays(f"no address in the reply {reply.code} {reply.text}", "report this server's reply")


def features(reply: Reply) -> dict[str, str]:
    """Return the features in a FEAT reply: names in upper case, with their parameters.

    >>> features(Reply(211, ("Extensions supported", "ERET", "CKSM MD5:10;ADLER32:10;", "End")))["CKSM"]
    'MD5:10;ADLER32:10;'
    """
    if reply.code != 211:
        return {}
    offered = (line.strip().partition(" ") for line in reply.lines[1:-1])
    return {name.upper(): parameters.strip() for name, _, parameters in offered}


def facts(reply: Reply) -> dict[str, str]:
    """Return the facts of an MLST reply, names in lower case: type, size, modify.

    >>> facts(Reply(250, ("status of /a", "Type=file;Size=12; /a", "End")))
    {'type': 'file', 'size': '12'}
    """
    if reply.code != 250 or len(reply.lines) < 3:
        return {}
    listed = reply.lines[1].split(" ", 1)[0].split(";")
    pairs = (fact.partition("=") for fact in listed if "=" in fact)
    return {name.lower(): value for name, _, value in pairs}


def digest_in(reply: Reply, algorithm: str) -> str | None:
    """Return the digest in a reply to CKSM, in lower-case hex; None if it has none.

    >>> digest_in(Reply(213, ("03DA0195",)), "adler32"), digest_in(Reply(213, ("soon",)), "adler32")
    ('03da0195', None)
    """
    digest = reply.lines[0].strip().lower()
    return digest if len(digest) == ALGORITHMS.get(algorithm.lower(), len(digest)) and HEX.fullmatch(digest) else None
