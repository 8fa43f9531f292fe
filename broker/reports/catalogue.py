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

__all__ = ["REPORTS", "Kind"]


class Kind(NamedTuple):
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


REPORTS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("overview", "Overview", overview.make, overview.Wanted, live=overview.live),
        Kind("tasks", "Tasks", tasks.make, tasks.Wanted),
        Kind("grid", "Sources and sinks", grid.make, grid.Wanted),
        Kind("drift", "Drift and blind spots", drift.make, drift.Wanted),
        Kind("forecasters", "Forecasters", forecasters.make, forecasters.Wanted),
        Kind("regret", "Regret", regret.make, regret.Wanted),
        Kind("decisions", "Decisions", decisions.make, decisions.Wanted),
        Kind("replicas", "Replicas", replicas.make, replicas.Wanted),
        Kind("audit", "Audit log", audit.make, audit.Wanted, admin=True),
        Kind("pair", "Pair", pair.make, pair.Wanted, listed=False),
        Kind("task", "Task", task.make, task.Wanted, listed=False),
        Kind("transfer", "Transfer", transfer.make, transfer.Wanted, listed=False),
    )
}
