"""The bookkeeping of partial copies: starting them, moving them between sources, ending them. The policies decide."""

from collections.abc import Sequence

from coalloc.model.reports import Ending
from coalloc.schedule.actions import Abandon, Action, Fetch, Shorten, Widen
from coalloc.schedule.shares import tail
from coalloc.schedule.sources import RunningCopy, ScheduledSource
from coalloc.schedule.state import State
from coalloc.util.intervals import Intervals

__all__ = ["PartialCopies"]


class PartialCopies:
    """The partial copies of one transfer.

    :param widens: whether distant sources may get more parallel streams
    :param actions: list to which each action is added
    """

    def __init__(self, state: State, widens: bool, actions: list[Action]) -> None:
        self._state = state
        self._widens = widens
        self._actions = actions
        self._next = 1

    def take(self, source: ScheduledSource, start: int, end: int, now: float) -> None:
        """Fetch those bytes of a range that are not final; they are unassigned, or in the source's own share."""
        source.share.remove(start, end)
        self._state.unassigned.remove(start, end)
        self._fetch(source, start, end, now, skip=self._state.final.within(start, end))

    def take_from_zero(self, source: ScheduledSource, now: float) -> None:
        """Fetch from byte 0 to the end of the last missing range in one copy, including bytes already present."""
        end = max(end for _, end in [*self._state.unassigned, *source.share])
        source.share.remove(0, end)
        self._state.unassigned.remove(0, end)
        self._fetch(source, 0, end, now)

    def steal(self, victim: ScheduledSource, thief: ScheduledSource, nbytes: int, now: float) -> RunningCopy | None:
        """Move the last `nbytes` of the victim's backlog to the thief: from the victim's share, if any, else its copy.

        :returns: the victim's copy if nothing is left of it, for the caller to release
        """
        if victim.share:
            start, end = list(victim.share)[-1]
            start = max(start, end - nbytes)
            victim.share.remove(start, end)
            self._fetch(thief, start, end, now)
            return None
        copy = self._state.running(victim)
        assert copy is not None, f"nothing to take from source {victim.index}"
        lacking = self._state.lacking(copy)
        middle, end = tail(lacking, nbytes), copy.end
        copy.end, copy.stolen_from = middle, True
        spent = middle <= lacking[0][0]
        if spent:
            self.abandon(copy)
        else:
            self._actions.append(Shorten(copy.id, middle))
        for start, stop in self._state.final.gaps(middle, end):
            thief.share.add(start, stop)
        stretch = self._state.first_stretch(thief.share)
        assert stretch is not None, "it takes some bytes"
        self.take(thief, *stretch, now)
        return copy if spent else None

    def race(self, copy: RunningCopy, source: ScheduledSource, now: float) -> None:
        """Fetch the missing bytes of a copy from this source too; the copy that delivers them first wins."""
        lacking = self._state.lacking(copy)
        start, end = lacking[0][0], lacking[-1][1]
        if not copy.unanswered:  # else only one of the two will deliver anything
            self._state.raced_bytes += sum(b - a for a, b in lacking)
        self._fetch(source, start, end, now, skip=self._state.final.within(start, end)).racing = True

    def abandon_losers(self, first: RunningCopy | None) -> list[RunningCopy]:
        """Stop copies that have lost a race; return them for the caller to release.

        One has lost if another copy has delivered its missing bytes, or if another one that races for the same bytes
        has delivered first, and this one nothing yet. A copy that delivered all its bytes itself is about to finish and
        is not stopped.

        :param first: the copy whose first bytes have just arrived; None if those that arrived were not its first
        """
        copies = list(self._state.copies.values())
        if not any(copy.racing for copy in copies):
            return []
        lost = [copy for copy in copies if not (copy.is_delivered or self._state.lacking(copy))]
        if first:
            lost += [copy for copy in self._state.rivals(first) if copy.unanswered and self._includes(first, copy)]
        for copy in lost:
            self.abandon(copy)
        return lost

    def _includes(self, copy: RunningCopy, other: RunningCopy) -> bool:
        """Return whether a copy will deliver all that another one lacks."""
        return all(copy.start <= start and end <= copy.end for start, end in self._state.lacking(other))

    def abandon(self, copy: RunningCopy) -> None:
        """Stop a copy, unless it was stopped before; the caller releases it."""
        if not copy.abandoned:
            copy.abandoned = True
            self._actions.append(Abandon(copy.id))

    def drain(self, source: ScheduledSource) -> None:
        """Let the source's copy end beside the next one, as its missing bytes are in flight."""
        assert source.copy is not None, "it has a copy"
        source.draining.append(source.copy)
        source.copy = None

    def hold(self, copy: RunningCopy, now: float, over: bool) -> None:
        """Record that a copy waits for admission; if `over`, that it no longer waits."""
        if over:
            copy.go_on(now)
        else:
            copy.held_at = now
            self._state.sources[copy.source].meter.hold(now)

    def release(self, copy: RunningCopy, ending: Ending, now: float) -> None:
        """Free the source and record how the copy ended; the caller reassigns its missing bytes."""
        del self._state.copies[copy.id]
        copy.go_on(now)
        copy.over_at, copy.ending = now, ending
        source = self._state.sources[copy.source]
        source.ended.append(copy)
        if copy.id in source.draining:
            source.draining.remove(copy.id)
        else:
            source.copy = source.draining.pop() if source.draining else None
        if source.copy is None:
            source.status, source.idle_at = "idle", now
            source.busy_seconds += now - source.busy_at
            source.meter.pause(now)
        else:
            self._state.copies[source.copy].went_on_at = now  # it was not silent, but behind this one
        self._state.note(f"{now:.3f} copy {copy.id}: over at end {copy.end}")

    def hand_back(self, source: ScheduledSource, now: float) -> None:
        """End the source's copies, and make all bytes that it still had to deliver unassigned."""
        for copy in self._state.all_running(source):
            self.release(copy, copy.ending or "failed", now)
            held = self._state.held
            for start, end in self._state.lacking(copy):
                for a, b in held.gaps(start, end):
                    self._state.unassigned.add(a, b)
        for start, end in source.share:
            self._state.unassigned.add(start, end)
        source.share = Intervals()

    def begin_widening(self, source: ScheduledSource, now: float) -> None:
        """Set the initial number of streams of a source if it is known to be distant."""
        if self._widens:
            backlog = self._state.backlog(source) or self._state.equal_share()
            self.widen(source, source.widening.begin(now, backlog), now)

    def widen(self, source: ScheduledSource, streams: int | None, now: float) -> None:
        """Set the number of streams, unless it is None."""
        if streams is not None:
            self._state.note(f"{now:.3f} source {source.index}: {streams} streams")
            self._actions.append(Widen(source.index, streams))

    def _fetch(
        self, source: ScheduledSource, start: int, end: int, now: float, skip: Sequence[tuple[int, int]] = ()
    ) -> RunningCopy:
        queued = bool(source.draining)
        copy = RunningCopy(self._next, source.index, start, end, requested_at=now, skip=skip, queued=queued)
        if not queued:
            source.busy_at = now
        self._next += 1
        self._state.copies[copy.id] = copy
        source.copy, source.status = copy.id, "fetching"
        self._state.note(f"{now:.3f} copy {copy.id}: [{start}, {end}) from source {source.index}")
        self.begin_widening(source, now)
        self._actions.append(Fetch(copy.id, source.index, start, end, tuple(skip)))
        return copy
