"""Partial copies: begun, moved from source to source, and over. Keeps the books of bytes; who does what others say."""

from collections.abc import Callable, Sequence

from coalloc.intervals import Intervals
from coalloc.model import Ending
from coalloc.schedule.actions import Abandon, Action, Fetch, Shorten, Widen
from coalloc.schedule.allocator import tail
from coalloc.schedule.state import Copy, Lane, State

__all__ = ["Copies"]


class Copies:
    """The partial copies of one transfer.

    :param widens: whether sources that are far may get more parallel streams
    :param act: is told what is to be done
    """

    def __init__(self, state: State, widens: bool, act: Callable[[Action], None]) -> None:
        self._state = state
        self._widens = widens
        self._act = act
        self._next = 1

    def take(self, lane: Lane, start: int, end: int, now: float) -> None:
        """Fetch what is unassigned, or of the lane's own share."""
        lane.share.remove(start, end)
        self._state.unassigned.remove(start, end)
        self._fetch(lane, start, end, now)

    def take_from_zero(self, lane: Lane, now: float) -> None:
        """Fetch all that is missing, in one go; what is here already comes once more."""
        end = max(end for _, end in [*self._state.unassigned, *lane.share])
        self.take(lane, 0, end, now)

    def steal(self, victim: Lane, thief: Lane, nbytes: int, now: float) -> Copy | None:
        """Move the last `nbytes` of the victim's backlog to the thief: of its share first, else of its copy.

        :returns: the copy, if nothing is left of it; to be released
        """
        if victim.share:
            start, end = list(victim.share)[-1]
            start = max(start, end - nbytes)
            victim.share.remove(start, end)
            self._fetch(thief, start, end, now)
            return None
        copy = self._state.running(victim)
        assert copy is not None, f"nothing to take from source {victim.source}"
        lacking = self._state.lacking(copy)
        middle, end = tail(lacking, nbytes), copy.end
        copy.end, copy.relieved = middle, True
        spent = middle <= lacking[0][0]
        self._act(Abandon(copy.id) if spent else Shorten(copy.id, middle))
        missing = self._state.final.gaps(middle, end)
        for start, stop in missing[1:]:
            thief.share.add(start, stop)
        self._fetch(thief, *missing[0], now)
        return copy if spent else None

    def race(self, copy: Copy, lane: Lane, now: float) -> None:
        """Fetch all that a copy lacks a second time."""
        lacking = self._state.lacking(copy)
        start, end = lacking[0][0], lacking[-1][1]
        self._state.raced_bytes += sum(b - a for a, b in lacking)
        self._fetch(lane, start, end, now, skip=self._state.final.within(start, end)).racing = True

    def abandon_losers(self) -> list[Copy]:
        """Stop those that lost a race, all that they lacked being delivered by another; which they are, to be released.

        Not so who delivered it all itself: it is about to finish.
        """
        copies = list(self._state.copies.values())
        if not any(copy.racing for copy in copies):
            return []
        lost = [
            copy
            for copy in copies
            if copy.skipped + copy.received < copy.end - copy.start and not self._state.lacking(copy)
        ]
        for copy in lost:
            self._act(Abandon(copy.id))
        return lost

    def hold(self, copy: Copy, now: float, over: bool) -> None:
        """It waits for leave to ask for more, or no more if that is `over`."""
        if over:
            copy.go_on(now)
        else:
            copy.held_at = now
            self._state.lanes[copy.source].meter.hold(now)

    def release(self, copy: Copy, ending: Ending, now: float) -> None:
        """The lane is free again; what it did not deliver is someone else's."""
        del self._state.copies[copy.id]
        copy.go_on(now)
        copy.over_at, copy.ending = now, ending
        lane = self._state.lanes[copy.source]
        lane.copy, lane.status, lane.idle_at = None, "idle", now
        lane.ended.append(copy)
        lane.busy_seconds += now - copy.asked_at
        lane.meter.pause(now)
        self._state.note(f"{now:.3f} copy {copy.id}: over at end {copy.end}")

    def hand_back(self, lane: Lane, now: float) -> None:
        """All that the lane still has to deliver is unassigned."""
        copy = self._state.running(lane)
        if copy is not None:
            self.release(copy, copy.ending or "failed", now)
            held = self._state.held
            for start, end in self._state.lacking(copy):
                for a, b in held.gaps(start, end):
                    self._state.unassigned.add(a, b)
        for start, end in lane.share:
            self._state.unassigned.add(start, end)
        lane.share = Intervals()

    def begin_widening(self, lane: Lane, now: float) -> None:
        """Give a source the streams to begin with, if it is known to be far."""
        if self._widens:
            self.widen(lane, lane.widening.begin(now, self._state.backlog(lane)), now)

    def widen(self, lane: Lane, streams: int | None, now: float) -> None:
        """Use another number of streams, if one is named."""
        if streams is not None:
            self._state.note(f"{now:.3f} source {lane.source}: {streams} streams")
            self._act(Widen(lane.source, streams))

    def _fetch(self, lane: Lane, start: int, end: int, now: float, skip: Sequence[tuple[int, int]] = ()) -> Copy:
        skipped = sum(b - a for a, b in skip)
        copy = Copy(self._next, lane.source, start, end, asked_at=now, skipped=skipped)
        self._next += 1
        self._state.copies[copy.id] = copy
        lane.copy, lane.status = copy.id, "fetching"
        self._state.note(f"{now:.3f} copy {copy.id}: [{start}, {end}) from source {lane.source}")
        self.begin_widening(lane, now)
        self._act(Fetch(copy.id, lane.source, start, end, tuple(skip)))
        return copy
