"""The Globus Transfer API, as far as its command line and its SDK use it. Its documents go no deeper than here."""

from broker.handlers.globus import access, bookmarks, endpoints, manager, operations, pausing, submit, tasks
from broker.handlers.globus.errors import error

__all__ = ["error", "routes"]

MODULES = (submit, tasks, operations, endpoints, access, bookmarks, manager, pausing)
routes = [route for module in MODULES for route in module.router.routes]
