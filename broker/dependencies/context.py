"""The services of the application that handles the request, and its public URL."""

from typing import Annotated, cast

from fastapi import Depends, Request

from broker.dependencies.origins import found_at
from broker.factory import Factory

__all__ = ["Home", "Services"]


def services(request: Request) -> Factory:
    """Return the services of this application."""
    return cast(Factory, request.app.state.factory)


def home(request: Request) -> str:
    """Return the URL of this broker for users: the configured one, else the origin of the connection (`found_at`)."""
    scope = request.scope
    said = services(request).settings.public_url.rstrip("/")
    return said or found_at(scope["scheme"], request.headers.get("Host", ""), scope.get("server"))


Services = Annotated[Factory, Depends(services)]
Home = Annotated[str, Depends(home)]
