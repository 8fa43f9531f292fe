"""Reports: pages under /reports, and their data under /broker/v1/reports."""

from broker.handlers.reports import data, downloads, events, forms, pages, session, static

__all__ = ["data", "routes"]

MODULES = (session, static, forms, downloads, events, pages)
routes = [route for module in MODULES for route in module.router.routes]
"""Routes of the pages."""
