"""Globus's Transfer and Timers APIs, as far as its clients use them. Their documents stay inside this package."""

from broker.handlers.globus import (
    access_rules,
    bookmarks,
    endpoint_manager,
    endpoints,
    not_offered,
    operations,
    pausing,
    shares,
    submit,
    tasks,
    timers,
)
from broker.handlers.globus.errors import error

__all__ = ["error", "routes"]

MODULES = (submit, tasks, operations, endpoints, shares, access_rules, bookmarks, endpoint_manager, pausing, timers)
ROUTERS = (*(module.router for module in MODULES), not_offered.transfer, not_offered.router)
routes = [route for router in ROUTERS for route in router.routes]
