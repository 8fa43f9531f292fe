"""Health checks and request metrics of the broker."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Guarded, Open
from broker.models.base import Problem, Wire

__all__ = ["router"]

router = APIRouter(tags=["operation"], route_class=Guarded)


class Health(Wire):
    """The response of a healthy broker."""

    status: str = "ok"


@router.get("/healthz")
async def healthz(caller: Open) -> Health:
    """Report that the process responds."""
    return Health()


@router.get("/readyz", responses={503: {"model": Problem}})
async def readyz(caller: Open, services: Services) -> Health:
    """Report that the process and the database respond."""
    await services.database.ready()
    return Health()


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(caller: Open, request: Request) -> Response:
    """Return the numbers and durations of requests as Prometheus metrics."""
    return Response(generate_latest(request.app.state.registry), media_type=CONTENT_TYPE_LATEST)
