"""aria2's statistics of servers (`--server-stat-of`): one line per server.

    host=mirror.example.org, protocol=https, dl_speed=32000, sc_avg_speed=0, mc_avg_speed=0, last_updated=1222491640,
    counter=1, status=OK

The file contains only rates. Each rate becomes one transfer of `SECONDS`, which ended when the line was last updated.
"""

from collections.abc import Iterable

from coalloc.history.formats.log import TransferLog, gather
from predictors.observation import Observation

__all__ = ["FIRST", "read"]

FIRST = "host="
"""Beginning of each line."""
SECONDS = 10.0


def read(lines: Iterable[tuple[int, str]]) -> TransferLog:
    """Read the newest rate of each server; leave out servers without one.

    :param lines: lines with their numbers
    """
    return gather("aria2's statistics of servers", lines, _server)


def _server(line: str) -> Observation | None:
    fields = dict(field.strip().split("=", 1) for field in line.split(",") if "=" in field)
    if not fields:
        return None
    host, at = fields["host"], float(fields["last_updated"])
    rate = int(fields["dl_speed"])
    if not rate:
        return None
    shown = f"[{host}]" if ":" in host else host
    return Observation(f"{fields['protocol']}://{shown}", at - SECONDS, at, round(rate * SECONDS))
