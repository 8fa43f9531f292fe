"""Promised finish times against the actual ends, their cost, and refused requests that ended in time all the same."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from statistics import fmean, median
from typing import Annotated

from pydantic import Field

from broker.models.base import Wire
from broker.models.guarantees import Guarantee
from broker.models.history import Pair
from broker.models.names import SinkName
from broker.reports.archive import Archive, Scope
from broker.reports.charts import calibration
from broker.reports.document import Column, Fact, Figure, Report, Table, Value
from broker.reports.queries import Day, pair_page, task_page
from broker.reports.words import size_span, written
from broker.storage.guarantees import GuaranteeStore
from predictors.context import size_class

__all__ = ["PromisesQuery", "make"]

MOST = 10_000
"""Most promises and refusals that are evaluated, the newest ones."""
SHOWN = 50
WEEKS = 8
FEWEST = 20
"""Fewest ended promises for a reliable share."""
STEPS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
"""Ends of the ranges of probabilities that are counted together."""
SUMS = (
    Column("made", "Promises", "count"),
    Column("open", "Open", "count"),
    Column("kept", "Kept", "count"),
    Column("broken", "Broken", "count"),
    Column("other", "Cancelled, or client silent", "count"),
    Column("promised", "Promised", "share"),
    Column("kept_share", "Kept, share", "share"),
    Column("links", "Links used", "number"),
    Column("left", "Time left at the end", "share"),
    Column("sharpness", "T95 / T50", "factor"),
)
SURE = Column("sure", "Wanted, at least", "share")
CHANCES = (
    Column("what", "Request"),
    Column("chance", "Probability", "share"),
    Column("kept", "In time", "count"),
    Column("ended", "Ended", "count"),
)
REFUSALS = (
    Column("kind", "Kind"),
    Column("refused", "Refused", "count"),
    Column("chance", "Probability, mean", "share"),
    Column("ended", "Ran without a promise", "count"),
    Column("kept", "In time", "count"),
    Column("kept_share", "In time, share", "share"),
)
BROKEN = (
    Column("made_at", "Promised", "moment"),
    Column("owner", "User"),
    Column("task", "Task", link="task_page"),
    Column("task_page", "Page of the task"),
    Column("sources", "From"),
    Column("sink", "To"),
    Column("bytes", "Size", "bytes"),
    Column("by", "Deadline", "moment"),
    Column("chance", "Probability", "share"),
    Column("chance_now", "Last probability", "share"),
    Column("ended_at", "Ended", "moment"),
)


class PromisesQuery(Wire):
    """A period in which the promises were requested, by default the last eight weeks; and optionally a sink."""

    since: Day | None = None
    until: Day | None = None
    sink: Annotated[SinkName | None, Field(title="To", description="A site.")] = None


async def make(archive: Archive, scope: Scope, query: PromisesQuery) -> Report:
    """Create the report from the ledger of promises."""
    now = time.time()
    until = now if query.until is None else query.until
    since = until - WEEKS * 7 * 86_400.0 if query.since is None else query.since
    async with archive.database.read() as connection:
        stored = GuaranteeStore(connection)
        found = await stored.between(scope.subject, query.sink, since, until, MOST, now)
        in_time = await stored.refused_tasks([each.id for each in found if each.outcome == "refused"], now)
    return await asyncio.to_thread(_report, found, in_time, now)


def _report(found: Sequence[Guarantee], in_time: Mapping[int, bool], now: float) -> Report:
    made = [each for each in found if each.outcome != "refused"]
    refused = [each for each in found if each.outcome == "refused"]
    by_sure = sorted(made, key=attrgetter("sure"))
    broken = [each for each in made if each.outcome == "broken"]
    rows = [_broken(each) for each in broken[:SHOWN]]
    return Report(
        "promises",
        "Promises",
        "Finish times that the broker promised, beside the actual ends. Promises are reliable if as many are kept as "
        "their probabilities say. Transfers that failed count as broken. Those that were cancelled, or whose clients "
        "fell silent, are not judged.",
        now,
        _facts(made, refused, in_time, full=len(found) == MOST),
        [_reliability(made, refused, in_time)],
        [
            _table("asked", "By the wanted probability", SURE, by_sure, _sure),
            _table("classes", "By kind and size", Column("class", "Class"), sorted(made, key=_class_order), _class),
            _links(made),
            _refusals(refused, in_time),
            Table("broken", "Broken promises", BROKEN, rows, "" if rows else "No promise was broken."),
        ],
    )


def _facts(
    made: Sequence[Guarantee], refused: Sequence[Guarantee], in_time: Mapping[int, bool], *, full: bool
) -> list[Fact]:
    judged = _judged(made)
    kept = sum(each.outcome == "kept" for each in judged)
    few = f"only {len(judged)} ended: not reliable" if len(judged) < FEWEST else ""
    promised = f"{written(fmean(each.chance for each in judged), 'share')} promised" if judged else ""
    newest = f"the newest {MOST:,} requests only" if full else ""
    return [
        Fact("Promises made", len(made), "count", newest),
        Fact("Kept", kept / len(judged) if judged else None, "share", few or promised),
        Fact("Broken", len(judged) - kept, "count"),
        Fact("Refused", len(refused), "count", newest),
        Fact(
            "Refused, but in time",
            sum(in_time.values()) / len(in_time) if in_time else None,
            "share",
            f"of {len(in_time):,} tasks that ran without a promise",
        ),
        Fact("T95 / T50", _sharpness(made), "factor", "median: how sharp the promises are; 1 is best"),
        Fact("Time left at the end", _left(made), "share", "median, of the time until the deadline"),
    ]


def _judged(made: Iterable[Guarantee]) -> list[Guarantee]:
    return [each for each in made if each.outcome in ("kept", "broken")]


def _sharpness(made: Iterable[Guarantee]) -> float | None:
    """Return the median of the seconds until T95 over those until T50."""
    pairs = [(each.t95 - each.made_at, each.t50 - each.made_at) for each in made if each.t50 and each.t95]
    factors = [later / sooner for later, sooner in pairs if sooner > 0]
    return median(factors) if factors else None


def _left(made: Iterable[Guarantee]) -> float | None:
    """Return the median share of the time until the deadline that was left when kept promises ended."""
    kept = [each for each in made if each.outcome == "kept" and each.ended_at]
    shares = [(each.by - (each.ended_at or each.by)) / (each.by - each.made_at) for each in kept]
    return median(shares) if shares else None


def _reliability(made: Sequence[Guarantee], refused: Sequence[Guarantee], in_time: Mapping[int, bool]) -> Figure:
    """Return the reliability diagram: probabilities that were stated, and the shares that came in time."""
    ended = {
        "promised": [(each.chance, each.outcome == "kept") for each in _judged(made)],
        "refused": [(each.chance, in_time[each.id]) for each in refused if each.id in in_time],
    }
    rows: list[Sequence[Value]] = []
    for what, outcomes in ended.items():
        groups: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
        for chance, kept in outcomes:
            groups[sum(chance >= step for step in STEPS)].append((chance, kept))
        for _, some in sorted(groups.items()):
            rows.append((what, fmean(chance for chance, _ in some), sum(kept for _, kept in some), len(some)))
    table = Table("chances", "Promised and kept", CHANCES, rows)
    return calibration("reliability", "Promised and kept", table, "chance", "kept", "ended", "what")


def _table(
    name: str, title: str, key: Column, made: Sequence[Guarantee], of: Callable[[Guarantee], str | float]
) -> Table:
    groups: defaultdict[str | float, list[Guarantee]] = defaultdict(list)
    for each in made:
        groups[of(each)].append(each)
    rows = [(value, *_row(some)) for value, some in groups.items()]
    return Table(name, title, (key, *SUMS), rows, _note(made))


def _note(made: Sequence[Guarantee]) -> str:
    if not made:
        return "There was no promise in this period."
    count = len(_judged(made))
    return "" if count >= FEWEST else f"{count} ended promises are too few for a reliable result."


def _row(some: Sequence[Guarantee]) -> tuple[Value, ...]:
    judged = _judged(some)
    kept = sum(each.outcome == "kept" for each in judged)
    is_open = sum(each.outcome == "open" for each in some)
    return (
        *(len(some), is_open, kept, len(judged) - kept, len(some) - is_open - len(judged)),
        fmean(each.chance for each in judged) if judged else None,
        kept / len(judged) if judged else None,
        fmean(len(each.shares) for each in some),
        *(_left(some), _sharpness(some)),
    )


def _sure(each: Guarantee) -> float:
    """Return the lower end of the range of the wanted probability."""
    return max((step for step in STEPS if step <= each.sure), default=0.0)


def _kind(each: Guarantee) -> str:
    return "transfer of a client" if each.task is None else "task"


def _class_order(each: Guarantee) -> tuple[str, int]:
    return _kind(each), each.bytes


def _class(each: Guarantee) -> str:
    return f"{_kind(each)}, {size_span(size_class(each.bytes))}"


def _links(made: Sequence[Guarantee]) -> Table:
    groups: defaultdict[tuple[str, str], list[Guarantee]] = defaultdict(list)
    for each in made:
        for share in each.shares:
            groups[share.source, each.sink].append(each)
    columns = (Column("source", "Source", link="address"), Column("address", "Address"), Column("sink", "Sink"), *SUMS)
    most = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))[:SHOWN]
    rows = [(source, pair_page(Pair(source, sink)), sink, *_row(some)) for (source, sink), some in most]
    cut = f"The {SHOWN} links with the most promises, of {len(groups):,}." if len(groups) > SHOWN else ""
    return Table("links", "By link", columns, rows, " ".join(filter(None, (cut, _note(made)))))


def _refusals(refused: Sequence[Guarantee], in_time: Mapping[int, bool]) -> Table:
    groups: defaultdict[str, list[Guarantee]] = defaultdict(list)
    for each in refused:
        groups[_kind(each)].append(each)
    rows = [(kind, *_refused(some, in_time)) for kind, some in sorted(groups.items())]
    note = "A client that is refused transfers nothing, so only tasks show which refusals were unnecessary."
    return Table("refusals", "Refused requests", REFUSALS, rows, note if rows else "No request was refused.")


def _refused(some: Sequence[Guarantee], in_time: Mapping[int, bool]) -> tuple[Value, ...]:
    ended = [in_time[each.id] for each in some if each.id in in_time]
    share = sum(ended) / len(ended) if ended else None
    return len(some), fmean(each.chance for each in some), len(ended), sum(ended), share


def _broken(each: Guarantee) -> tuple[Value, ...]:
    return (
        *(each.made_at, each.owner, each.task, each.task and task_page(each.task)),
        *(", ".join(share.source for share in each.shares), each.sink, each.bytes),
        *(each.by, each.chance, each.chance_now, each.ended_at),
    )
