"""A logged-in session with one server for one file: its size, and the commands that request a range.

`login` logs in, `data_connections` makes data connections, `stream` and `block_channel` receive data; `source` decides
when sessions are made and dropped.
"""

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple, Self

from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import Address
from coalloc.engine.gridftp.control import ControlConnection, PendingReply
from coalloc.engine.gridftp.login import GridFTPLogin
from coalloc.engine.gridftp.refusals import refusal
from coalloc.engine.gridftp.replies import Reply, digest_in, facts
from coalloc.errors import NoSuchFile, Unsupported
from coalloc.model.replicas import Stat
from coalloc.util.counts import count

__all__ = ["Session"]

COMPARED = "adler32"
"""The algorithm of the checksums by which replicas are compared."""


class _AfterTransfer(NamedTuple):
    """Commands that were sent together with a transfer, and that the server carries out after it.

    :param fetch: number of the fetch with this transfer
    :param questions: replies about size and version; None once they were used
    :param digest: reply about the checksum of `span`; None if the server has none, or once it was used
    """

    fetch: int
    transfer: PendingReply
    questions: Sequence[PendingReply] | None
    span: tuple[int, int]
    digest: PendingReply | None


class Session(GridFTPLogin):
    """A login that has asked for its file's size and version. Its data connections are those of the login, `data`."""

    def __init__(self, control: ControlConnection, address: Address, options: EngineOptions, pipelined: bool) -> None:
        super().__init__(control, address, options, pipelined)
        self.stat = Stat(0)
        self._after: _AfterTransfer | None = None

    def about(self, path: str) -> Self:
        """Return a copy of this session for fetching another file at the server, without a query about that file."""
        other = copy(self)
        other.address = self.address.at(path)
        return other

    def _questions(self) -> Sequence[str]:
        path = self.address.path
        return f"MLST {path}", f"SIZE {path}", f"MDTM {path}"

    def _send_ahead(self) -> None:
        self.ask_ahead()

    async def _answered(self, answers: Sequence[Reply]) -> None:
        ranged = bool({"ERET", "REST"} & self._features.keys()) or (await self.control.ask("REST 1")).code == 350
        self.stat = self._understand(answers, ranged)

    def ask_after(self, fetch: int, transfer: PendingReply, start: int, end: int) -> None:
        """Ask for the file's size and version, and the checksum of a range, after its transfer.

        So the answers come together with the end of the transfer, and not a round trip later. Each is used only once.

        :param fetch: number of the fetch with this transfer
        """
        if self.pipelined:
            digest = self._checksum_of(self.address.path, COMPARED, start, end)
            self._after = _AfterTransfer(fetch, transfer, self._ask(), (start, end), digest)

    async def stat_after(self, fetch: int) -> Stat | None:
        """Return the answer about size and version that `ask_after` asked for in a fetch; None if there is none."""
        after = self._after
        if after is None or after.fetch != fetch or after.questions is None:
            return None
        if not await self._ended_well(after.transfer):
            return None
        self._after = after._replace(questions=None)
        return self._understand([await self.control.reply(each) for each in after.questions], self.stat.ranged)

    async def _ended_well(self, transfer: PendingReply) -> bool:
        """Return whether a transfer ended well; answers to later commands then show the state after it.

        A server that answers later commands during the transfer sends something other than 226 first.
        """
        return (await self.control.reply(transfer)).code == 226

    async def ask_again(self) -> Stat:
        """Ask for the file's size and version once more."""
        if self.pipelined:
            answers = [await self.control.reply(each) for each in self._ask()]
        else:
            answers = [await self.control.ask(question) for question in self._questions()]
        return self._understand(answers, self.stat.ranged)

    def _ask(self) -> list[PendingReply]:
        return [self.control.submit(question, self.options.connect_seconds) for question in self._questions()]

    def _understand(self, answers: Sequence[Reply], ranged: bool) -> Stat:
        listed, size, modified = answers
        known = facts(listed)
        if not self.address.path.isascii():
            self._check_name(listed)
        if known.get("type", "").lower() in ("dir", "cdir", "pdir"):
            raise NoSuchFile(f"{self.address.shown} is a directory", "give the path of a file in it")
        # ProFTPD's facts of a symbolic link are its own, while these commands tell about the file that it leads to.
        length_text = size.lines[0].strip() if size.code == 213 else known.get("size", "")
        if not length_text and not size.positive:
            raise refusal(size, self.address.shown)
        if (length := count(length_text)) is None:
            stated = size if size.code == 213 else listed
            raise Unsupported(
                f"{self.address.shown}: the server states an invalid size: {stated.text[:80]!r}",
                "use another replica",
            )
        validator = modified.lines[0].strip() if modified.code == 213 else known.get("modify")
        return Stat(length, validator, ranged=ranged, rtt=self.control.round_trip)

    def _check_name(self, listed: Reply) -> None:
        """Refuse a server that received another name: Globus servers drop non-ASCII characters if unprotected."""
        shown, remedy = (
            self.address.shown,
            "GridFTP servers may drop non-ASCII characters from names over ftp://: try gsiftp://",
        )
        if listed.code == 550:
            raise NoSuchFile(f"{shown}: the server says 550 {listed.text}", f"check the path; {remedy}")
        if listed.code == 250 and not listed.lines[1].endswith(self.address.path):
            raise Unsupported(f"{shown}: the server understood another name, {listed.text!r}", remedy)

    @property
    def sends_blocks(self) -> bool:
        """Return whether MODE E is possible: the server offers it, and pipelining; data connections are unprotected."""
        offered = {"ERET", "PARALLEL"} <= self._features.keys()
        return offered and self.pipelined and not self.protects_data

    def ask_ahead(self) -> None:
        """Prepare the next data connection, if the server accepts pipelined commands."""
        if self.pipelined:
            self.data.prepare()

    async def retrieve(self, start: int, end: int) -> PendingReply:
        """Request bytes [start, end) on the data connection that is ready; return the future final reply.

        A server without ERET sends beyond `end` until the data connection is closed.
        """
        path = self.address.path
        if "ERET" in self._features:
            return self.control.submit(f"ERET P {start} {end - start} {path}")
        restart = self.control.submit(f"REST {start}")
        transfer = self.control.submit(f"RETR {path}")
        reply = await self.control.reply(restart)
        if start and reply.code != 350:
            raise Unsupported(f"{self.address.shown}: the server cannot send a part of a file", "use another replica")
        return transfer

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        """Return the server's digest of bytes [start, end) in lower-case hex; None if the server does not offer it."""
        pending, after = None, self._after
        if after and algorithm == COMPARED and (start, end) == after.span and await self._ended_well(after.transfer):
            self._after, pending = after._replace(digest=None), after.digest
        pending = pending or self._checksum_of(self.address.path, algorithm, start, end)
        if pending is None:
            return None
        reply = await pending
        return digest_in(reply, algorithm) if reply.code == 213 else None
