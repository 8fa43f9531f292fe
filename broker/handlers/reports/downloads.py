"""What pages offer to be kept: figures, tables, and all of a report."""

from fastapi import APIRouter

from broker.dependencies.sessions import Browsing, BrowsingAdmin
from broker.handlers.reports.routes import Tidy, table, whole
from broker.reports.catalogue import REPORTS

__all__ = ["router"]

router = APIRouter(prefix="/reports", route_class=Tidy)

for kind in REPORTS.values():
    caller = BrowsingAdmin if kind.admin else Browsing
    router.add_api_route(f"/{kind.name}.json", whole(kind, caller))
    router.add_api_route(f"/{kind.name}/{{part}}.csv", table(kind, caller))
