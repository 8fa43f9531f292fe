"""Published tables in their original form: transfers to and from a tape store, and traces of bandwidth.

Transfers of SLAC to and from HPSS (psdm-databooks): this module keeps transfers with a meaningful rate, by the limits
customary in evaluations: from 1 s to 6 h long, over 1 MB, below 10 Gbit/s, of file systems with at least 300 transfers.

Traces (`series, t, mbps`, and `time_count, bits, bytes`, the traffic of a backbone): each sample is read as a probe of
fixed size that began at the previous sample; as the size is fixed, it reveals nothing about the rate.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

from coalloc.history.formats.log import RefusedLine, TransferLog, gather, named, others_under_way
from predictors.observation import Observation

__all__ = ["KNOWN"]

Row = Mapping[str, str]
Rows = Iterable[tuple[int, Sequence[str]]]
"""Rows with their line numbers."""

HPSS = ("instr", "ftype", "start", "fsz", "elap", "ttype", "fsid")
READ, WRITE = "1", "0"
"""Types of transfer; rows with another type, such as -1, are left out."""
SHORTEST, LONGEST, SMALLEST, FASTEST, FEWEST = 1.0, 6 * 3600.0, 1e6, 10e9 / 8, 300
PROBE = 10_000_000
"""Assumed bytes of a probe."""
BACKBONE_SHARE = 1.25
"""Assumed capacity of a backbone, as a multiple of its peak traffic; capacity less traffic is available."""


def _hpss(rows: Rows, header: Sequence[str]) -> TransferLog:
    log = gather("transfers of SLAC to and from HPSS", rows, lambda values: _hpss_row(named(header, values)))
    per_system = Counter(_system(observation) for observation in log.observations)
    both = zip(log.observations, log.lines, strict=True)
    selected = [(observation, line) for observation, line in both if per_system[_system(observation)] >= FEWEST]
    return log._replace(
        observations=others_under_way([observation for observation, _ in selected]),
        lines=[line for _, line in selected],
        left_out=log.left_out + len(log.lines) - len(selected),
    )


def _hpss_row(row: Row) -> Observation | None:
    if row["ttype"] not in (READ, WRITE):
        return None
    seconds, size = float(row["elap"]) / 1000, int(row["fsz"])
    if not SHORTEST <= seconds < LONGEST or size <= SMALLEST or size / seconds >= FASTEST:
        return None
    system, start, reading = f"fs{row['fsid']}", float(row["start"]), row["ttype"] == READ
    return Observation(
        source="hpss" if reading else system,
        sink=system if reading else "hpss",
        direction="read" if reading else "write",
        start=start,
        end=start + seconds,
        bytes=size,
        file_class=row["ftype"],
    )


def _system(observation: Observation) -> str:
    return observation.sink if observation.direction == "read" else observation.source


def _series(rows: Rows, header: Sequence[str]) -> TransferLog:
    before: dict[str, float] = {}

    def sample(values: Sequence[str]) -> Observation | None:
        row = named(header, values)
        name, at = row["series"], float(row["t"])
        began = before.get(name)
        before[name] = at
        return None if began is None else _probe(name, began, at, float(row["mbps"]) * 1e6 / 8)

    return gather("traces of bandwidth", rows, sample)


def _backbone(rows: Rows, header: Sequence[str]) -> TransferLog:
    samples, refused = _samples(rows, header)
    most = BACKBONE_SHARE * max((traffic for _, _, traffic in samples), default=0.0)
    log = gather(
        "available bandwidth of a backbone",
        ((n, (began, ended, most - traffic)) for (_, began, _), (n, ended, traffic) in pairwise(samples)),
        lambda row: _probe("backbone", *row),
    )
    first = len(samples[:1])  # the first sample has no predecessor, so it yields no probe
    return log._replace(refused=[*refused, *log.refused], left_out=log.left_out + first)


def _samples(rows: Rows, header: Sequence[str]) -> tuple[list[tuple[int, float, float]], list[RefusedLine]]:
    """Return the line, time and traffic of each sample, and the rows that could not be read."""
    found, refused = [], []
    for number, values in rows:
        try:
            row = named(header, values)
            moment = datetime.fromisoformat(row["time_count"]).replace(tzinfo=UTC)
            found.append((number, moment.timestamp(), float(row["bytes"])))
        except (ValueError, TypeError, OverflowError) as error:
            refused.append(RefusedLine(number, str(error)))
    return found, refused


def _probe(name: str, began: float, ended: float, rate: float) -> Observation | None:
    if rate <= 0:
        return None
    return Observation(name, began, ended, PROBE, busy_seconds=PROBE / rate)


KNOWN: Mapping[tuple[str, ...], Callable[[Rows, Sequence[str]], TransferLog]] = {
    HPSS: _hpss,
    ("series", "t", "mbps"): _series,
    ("time_count", "bits", "bytes"): _backbone,
}
"""Readers by the columns that they need."""
