"""The Globus Transfer API, as far as its command line and SDK use it. Its documents stay inside this package."""

from broker.handlers.globus import (
    access_rules,
    bookmarks,
    endpoint_manager,
    endpoints,
    operations,
    pausing,
    submit,
    tasks,
)
from broker.handlers.globus.errors import error

__all__ = ["error", "routes"]

MODULES = (submit, tasks, operations, endpoints, access_rules, bookmarks, endpoint_manager, pausing)
routes = [route for module in MODULES for route in module.router.routes]
