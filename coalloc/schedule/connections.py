"""Connections to sources: which ones to open, which to close, and which sources are spare. Pure."""

from coalloc.schedule.actions import Action, Close, Connect
from coalloc.schedule.policies.base import Policy
from coalloc.schedule.sources import ScheduledSource
from coalloc.schedule.state import State

__all__ = ["Connections"]

LINGER = 2.0
"""Seconds for which a source without work stays connected, unless another source needs its place, or another transfer
its connection.
"""


class Connections:
    """A manager of connections: to the sources that the policy needs, up to a number, while these have work.

    :param most: maximum number of sources to use at once; the others replace those that fail
    :param actions: list to which each action is added
    """

    def __init__(self, state: State, policy: Policy, most: int, actions: list[Action]) -> None:
        self._state = state
        self._policy = policy
        self._most = most
        self._actions = actions

    @property
    def full(self) -> bool:
        """Return whether the maximum number of sources is in use."""
        usable = (source for source in self._state.sources if source.usable)
        return sum(source.status not in ("pausing", "waiting") for source in usable) >= self._most

    def allow(self, most: int) -> None:
        """Use up to so many sources at once from now on."""
        self._most = most

    def admit(self, now: float, *, begun: bool) -> None:
        """Connect sources up to the allowed number; spare ones replace those that pause, wait or have failed.

        :param begun: whether the shares have been assigned
        """
        for source in sorted(self._state.sources, key=lambda source: (not source.ranged, source.failures)):
            if not self.full and self._is_wanted(source, now, begun):
                source.status, source.connected = "connecting", True
                self._actions.append(Connect(source.index))

    def disconnect_unused(self, now: float, *, begun: bool) -> None:
        """Disconnect sources without work that are not needed, including those connected before the start."""
        for source in self._state.sources:
            unused = source.status == "spare" and source.connected
            if unused or (begun and source.status == "idle" and self._is_spare(source, now)):
                self.set_spare(source)
        self.admit(now, begun=begun)  # others take their places

    def can_take_part(self, source: ScheduledSource) -> bool:
        """Return whether a source can send ranges, or is the only usable one and can send the whole file."""
        return source.ranged or self._state.is_last(source)

    def set_spare(self, source: ScheduledSource) -> None:
        """Disconnect a source that has no work, for now."""
        source.status = "spare"
        if not source.ranged:
            source.reason = "it ignores ranges, so it is used only when it is the last"
        self.close(source, temporary=True)

    def close(self, source: ScheduledSource, *, temporary: bool = False) -> None:
        """Disconnect a source, if it is connected."""
        if source.connected:
            source.connected = False
            self._actions.append(Close(source.index, temporary))

    def _is_wanted(self, source: ScheduledSource, now: float, begun: bool) -> bool:
        """Return whether this source is unused and should be connected."""
        if source.status != "spare" or not source.ranged:
            return source.status == "spare" and self._state.is_last(source)
        role = self._policy.role(self._state, source, now) if begun else "needed"
        return role == "needed" or (role == "reserve" and not source.wanted)

    def _is_spare(self, source: ScheduledSource, now: float) -> bool:
        if not self.can_take_part(source):
            return True
        role = self._policy.role(self._state, source, now)
        if role == "needed":
            return False
        limited = source.wanted or any(self._would_be_needed(other, now) for other in self._state.sources)
        return limited or (role == "spare" and now >= source.idle_at + LINGER)

    def _would_be_needed(self, source: ScheduledSource, now: float) -> bool:
        """Return whether a source is unused only because the maximum number of others is in use."""
        return source.status == "spare" and source.ranged and self._policy.role(self._state, source, now) == "needed"
