"""Routes, one resource a file. A handler declares its route and its policy, calls one service, returns a model."""

from typing import Any

from fastapi import APIRouter

from broker.handlers import (
    access,
    asides,
    bulk,
    collections,
    datasets,
    decisions,
    forecasts,
    ga4gh,
    globus,
    health,
    monitoring,
    oauth,
    places,
    plans,
    replicas,
    reports,
    tasks,
    transfers,
)
from broker.models.base import Problem

__all__ = ["UNLIMITED", "ga4gh", "globus", "oauth", "operation", "own", "reports"]

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (400, 401, 403, 404, 409, 413, 422, 429, 503)
}
"""What any of our own routes may answer instead."""

own = APIRouter(prefix="/broker/v1", responses=ERRORS)
for module in (
    places,
    collections,
    datasets,
    replicas,
    bulk,
    transfers,
    decisions,
    forecasts,
    plans,
    tasks,
    access,
    asides,
    monitoring,
    reports.data,
):
    own.include_router(module.router)

operation = health.router
UNLIMITED = frozenset(f"{root}{own.prefix}{path}" for root in ("", "/v0.10") for path in bulk.PATHS + transfers.PATHS)
