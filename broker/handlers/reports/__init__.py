"""Reports: pages for people in browsers under /reports, and the same as data under /broker/v1/reports."""

from fastapi import APIRouter

from broker.handlers.reports import actions, data, downloads, events, pages, session, static

__all__ = ["data", "router"]

router = APIRouter(include_in_schema=False)
"""Pages; not in our document of the interface."""
for module in (session, static, actions, downloads, events, pages):
    router.include_router(module.router)
