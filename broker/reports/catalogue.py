"""All reports by name, with the parameters of each."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pydantic import BaseModel

from broker.reports import (
    audit,
    decisions,
    drift,
    forecasters,
    grid,
    overview,
    pair,
    regret,
    replicas,
    task,
    tasks,
    transfer,
)
from broker.reports.archive import Archive, Scope
from broker.reports.document import Report

__all__ = ["REPORTS", "ReportKind"]


class ReportKind(NamedTuple):
    """A report.

    :param name: name in addresses
    :param title: title in menus
    :param wanted: model of its query parameters
    :param admin: whether only admins may see it
    :param listed: whether menus list it; other reports are reached by links from these
    :param live: function that makes its frequently changing facts and tables, which replace those of the same names
    """

    name: str
    title: str
    make: Callable[[Archive, Scope, Any], Awaitable[Report]]
    wanted: type[BaseModel]
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
        ReportKind("decisions", "Decisions", decisions.make, decisions.DecisionsQuery),
        ReportKind("replicas", "Replicas", replicas.make, replicas.ReplicasQuery),
        ReportKind("audit", "Audit log", audit.make, audit.AuditQuery, admin=True),
        ReportKind("pair", "Pair", pair.make, pair.PairQuery, listed=False),
        ReportKind("task", "Task", task.make, task.TaskQuery, listed=False),
        ReportKind("transfer", "Transfer", transfer.make, transfer.TransferQuery, listed=False),
    )
}
