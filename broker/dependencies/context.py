"""The services of the application that handles the request, and where it is found."""

from typing import Annotated, cast

from fastapi import Depends, Request

from broker.factory import Factory

__all__ = ["Home", "Services"]


def services(request: Request) -> Factory:
    """Those of this application."""
    return cast(Factory, request.app.state.factory)


def home(request: Request) -> str:
    """Where users find this broker: as an admin has said, or as the request seems to know."""
    return (services(request).settings.public_url or str(request.base_url)).rstrip("/")


Services = Annotated[Factory, Depends(services)]
Home = Annotated[str, Depends(home)]
