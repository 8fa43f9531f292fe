"""The services of the application that handles the request, and where it is found."""

from typing import Annotated, cast

from fastapi import Depends, Request

from broker.dependencies.origins import found_at
from broker.factory import Factory

__all__ = ["Home", "Services"]


def services(request: Request) -> Factory:
    """Those of this application."""
    return cast(Factory, request.app.state.factory)


def home(request: Request) -> str:
    """Where users find this broker: as an admin has said, else where the connection came to, whatever `Host` says."""
    scope = request.scope
    said = services(request).settings.public_url.rstrip("/")
    return said or found_at(scope["scheme"], request.headers.get("Host", ""), scope.get("server"))


Services = Annotated[Factory, Depends(services)]
Home = Annotated[str, Depends(home)]
