"""The Globus Transfer API, as far as its command line and SDK use it. Its documents stay inside this package."""

from broker.handlers.globus import access, bookmarks, endpoints, manager, operations, pausing, submit, tasks
from broker.handlers.globus.errors import error

__all__ = ["error", "routes"]

MODULES = (submit, tasks, operations, endpoints, access, bookmarks, manager, pausing)
routes = [route for module in MODULES for route in module.router.routes]
