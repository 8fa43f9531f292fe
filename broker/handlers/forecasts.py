"""Forecasts for transfers."""

from typing import Annotated

from fastapi import Query

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader
from broker.handlers.routers import own_router
from broker.models.base import Size
from broker.models.forecasts import Expected, ForecastRequest, Forecasts, Questions
from broker.models.history import Direction
from broker.models.names import FileClass, SourceName, Whereto

__all__ = ["router"]

router = own_router("forecasts")


@router.get("/forecasts")
async def forecast(
    caller: Reader,
    services: Services,
    source: Annotated[SourceName, Query(description="an endpoint's name, or SCHEME://HOST[:PORT]")],
    sink: Annotated[
        Whereto | None, Query(description="a site, or SCHEME://HOST[:PORT]; default: the caller's site")
    ] = None,
    size: Annotated[Size | None, Query(description="bytes")] = None,
    direction: Annotated[Direction, Query()] = "read",
    file_class: Annotated[FileClass, Query()] = "",
) -> Expected:
    """Forecast a transfer that begins now."""
    here = caller.site if sink is None else sink
    request = ForecastRequest(source=source, sink=here, size=size, direction=direction, file_class=file_class)
    return (await services.forecasting.ask([request], caller))[0]


@router.post("/forecasts")
async def forecasts(questions: Questions, caller: Reader, services: Services) -> Forecasts:
    """Forecast several transfers."""
    return Forecasts.model_construct(forecasts=await services.forecasting.ask(questions.forecasts, caller))
