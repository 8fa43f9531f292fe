"""Routes, one resource per file. A handler declares a route and its policy, calls one service, and returns a model."""

from broker.handlers import (
    bulk,
    collections,
    datasets,
    decisions,
    depots,
    forecasts,
    ga4gh,
    globus,
    guarantees,
    health,
    ignored_subjects,
    monitoring,
    oauth,
    places,
    plans,
    replicas,
    reports,
    tasks,
    tokens,
    transfers,
)
from broker.handlers.routers import OWN

__all__ = ["MANY", "UNLIMITED", "ga4gh", "globus", "others", "own"]

MODULES = (
    places,
    depots,
    collections,
    datasets,
    replicas,
    bulk,
    transfers,
    decisions,
    forecasts,
    plans,
    guarantees,
    tasks,
    tokens,
    ignored_subjects,
    monitoring,
    reports.data,
)
own = [route for module in MODULES for route in module.router.routes]
"""Routes of the broker's own API."""
others = [*ga4gh.router.routes, *oauth.routes, *globus.routes, *reports.routes, *health.router.routes]
UNLIMITED = frozenset(f"{root}{OWN}{path}" for root in ("", "/v0.10") for path in bulk.PATHS + transfers.PATHS)
TAKING_MANY = ("/transfers", "/decisions", "/forecasts", "/plans", "/replicas/resolve", "/tasks")
MANY = frozenset(
    [
        *(f"{root}{OWN}{path}" for root in ("", "/v0.10") for path in TAKING_MANY),
        *("/v0.10/transfer", "/v0.10/delete"),
    ]
)
"""Paths that accept thousands of entries in one request."""
