"""All reports by name, with their parameters, and the creation of one or all of them for a period."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from broker.errors import Invalid, NotFound
from broker.reports import (
    audit,
    decisions,
    depots,
    drift,
    forecasters,
    grid,
    overview,
    pair,
    promises,
    regret,
    replicas,
    task,
    tasks,
    transfer,
)
from broker.reports.archive import Archive, Scope
from broker.reports.document import Report
from broker.reports.words import written

__all__ = ["ALL", "PRESENT", "REPORTS", "Period", "ReportKind", "listed", "made", "query_of"]

ALL = "all"
DAY = 86_400.0


class ReportKind(NamedTuple):
    """A report.

    :param name: name in addresses
    :param title: title in menus
    :param query: model of its query parameters
    :param admin: whether only admins may see it
    :param listed: whether menus list it; other reports are reached by links from the listed ones
    :param live: function that creates its frequently changing facts and tables, for updates of an open page
    """

    name: str
    title: str
    make: Callable[[Archive, Scope, Any], Awaitable[Report]]
    query: type[BaseModel]
    admin: bool = False
    listed: bool = True
    live: Callable[[Archive, Scope], Awaitable[Report]] | None = None


REPORTS: dict[str, ReportKind] = {
    kind.name: kind
    for kind in (
        ReportKind("overview", "Overview", overview.make, overview.OverviewQuery, live=overview.live),
        ReportKind("tasks", "Tasks", tasks.make, tasks.TasksQuery),
        ReportKind("grid", "Sources and sinks", grid.make, grid.GridQuery),
        ReportKind("drift", "Drift and blind spots", drift.make, drift.DriftQuery),
        ReportKind("forecasters", "Forecasters", forecasters.make, forecasters.ForecastersQuery),
        ReportKind("regret", "Regret", regret.make, regret.RegretQuery),
        ReportKind("promises", "Promises", promises.make, promises.PromisesQuery),
        ReportKind("depots", "Depots", depots.make, depots.DepotsQuery),
        ReportKind("decisions", "Decisions", decisions.make, decisions.DecisionsQuery),
        ReportKind("replicas", "Replicas", replicas.make, replicas.ReplicasQuery),
        ReportKind("audit", "Audit log", audit.make, audit.AuditQuery, admin=True),
        ReportKind("pair", "Pair", pair.make, pair.PairQuery, listed=False),
        ReportKind("task", "Task", task.make, task.TaskQuery, listed=False),
        ReportKind("transfer", "Transfer", transfer.make, transfer.TransferQuery, listed=False),
    )
}


LISTED = [kind for kind in REPORTS.values() if kind.listed]
PRESENT = [kind.title for kind in LISTED if "until" not in kind.query.model_fields]
"""Titles of the listed reports that always end now."""


class Period(NamedTuple):
    """The period of a report; by default it ends now, and each report chooses its start.

    :param since: seconds since the epoch
    :param until: seconds since the epoch
    """

    since: float | None = None
    until: float | None = None

    def __str__(self) -> str:
        """Return the period as text for readers; empty if it has neither start nor end."""
        moments = [("From", self.since), ("to", self.until)]
        return " ".join(f"{word} {written(moment, 'moment')}" for word, moment in moments if moment is not None)


def query_of(kind: ReportKind, parameters: Mapping[str, str], period: Period, now: float) -> BaseModel:
    """Return the parameters of a report: the given ones and the period, which some reports take as a number of days.

    :raises pydantic.ValidationError: when the report does not accept them
    """
    known: dict[str, float | str] = {name: at for name, at in period._asdict().items() if at is not None}
    fields = kind.query.model_fields
    if period.since is not None and "since" not in fields:
        known["days"] = max(1, round((now - period.since) / DAY))
    return kind.query.model_validate({**{name: known[name] for name in known.keys() & fields.keys()}, **parameters})


async def made(
    archive: Archive, name: str, parameters: Mapping[str, str], period: Period, now: float
) -> Sequence[Report]:
    """Create one report, or all that menus list, as admins see them.

    :param name: name of the report, or `ALL`
    :param parameters: parameters of the report, by name
    :param now: seconds since the epoch
    :raises NotFound: when there is no report of this name
    :raises Invalid: when the report has no period, or always ends now, and one was given
    """
    if name != ALL and name not in REPORTS:
        raise NotFound(f"there is no report {name}", f"choose one of {', '.join(REPORTS)}, or all")
    kinds = LISTED if name == ALL else [REPORTS[name]]
    if period.until is not None and (endless := _without(kinds, "until")):
        raise Invalid(f"{', '.join(endless)} has no end date: it shows the present", "leave out --until")
    if period.since is not None and name in _without(kinds, "since", "days"):
        raise Invalid(f"the report {name} has no period", "leave out --since and --days")
    return await _made(archive, kinds, parameters, period, now)


async def listed(archive: Archive, period: Period, now: float) -> Sequence[Report]:
    """Create all reports that menus list, as admins see them; a report that always ends now ignores the end."""
    return await _made(archive, LISTED, {}, period, now)


async def _made(
    archive: Archive, kinds: Iterable[ReportKind], parameters: Mapping[str, str], period: Period, now: float
) -> Sequence[Report]:
    return [await kind.make(archive, Scope(None), query_of(kind, parameters, period, now)) for kind in kinds]


def _without(kinds: Iterable[ReportKind], *fields: str) -> list[str]:
    return [kind.name for kind in kinds if not kind.query.model_fields.keys() & set(fields)]
