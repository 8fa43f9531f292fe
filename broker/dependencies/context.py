"""The services of the application that handles the request."""

from typing import Annotated, cast

from fastapi import Depends, Request

from broker.factory import Factory

__all__ = ["Services"]


def services(request: Request) -> Factory:
    """Those of this application."""
    return cast(Factory, request.app.state.factory)


Services = Annotated[Factory, Depends(services)]
