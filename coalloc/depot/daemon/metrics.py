"""Counters of a depot, in the text format of Prometheus."""

import time
from collections import Counter

__all__ = ["Metrics"]


class Metrics:
    """Counters since the start of the depot.

    :ivar ended: sessions that ended, by kind of end
    :ivar refused: requests that were refused or failed, by kind of failure
    :ivar moved: bytes carried in sessions that ended, by direction: "up" to the destination, "down" to the client
    """

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self._started = time.time()

    def text(self, sessions: int, pending: int, ports: int) -> str:
        """Return all counters.

        :param sessions: number of sessions whose bytes are carried now
        :param pending: number of connections that are not sessions yet
        :param ports: number of open ports
        """
        lines = [
            *_lines("coget_depot_sessions", "gauge", "Sessions whose bytes are carried now.", {"": sessions}),
            *_lines("coget_depot_pending", "gauge", "Connections that are not sessions yet.", {"": pending}),
            *_lines("coget_depot_ports", "gauge", "Open ports.", {"": ports}),
            *_lines("coget_depot_start_time_seconds", "gauge", "Time of the start.", {"": round(self._started, 3)}),
            *_lines("coget_depot_ended_total", "counter", "Sessions that ended.", self.ended, "end"),
            *_lines("coget_depot_refused_total", "counter", "Refused or failed requests.", self.refused, "reason"),
            *_lines("coget_depot_bytes_total", "counter", "Bytes carried in ended sessions.", self.moved, "direction"),
        ]
        return "\n".join([*lines, ""])


def _lines(name: str, kind: str, text: str, values: dict[str, int] | dict[str, float], label: str = "") -> list[str]:
    samples = [f'{name}{{{label}="{key}"}} {value}' if label else f"{name} {value}" for key, value in values.items()]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *samples]
