"""Sites and endpoints."""

from typing import Annotated, TypeVar

from fastapi import Path, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Curator, Reader
from broker.errors import Invalid
from broker.handlers.routers import own_router
from broker.models.base import Wire
from broker.models.catalogue import Endpoint, Site
from broker.models.names import Named

__all__ = ["router"]

router = own_router("places")
Name = Annotated[Named, Path()]
Thing = TypeVar("Thing", Site, Endpoint)


class Sites(Wire):
    """All sites."""

    sites: list[Site]


class Endpoints(Wire):
    """All endpoints."""

    endpoints: list[Endpoint]


@router.get("/sites")
async def sites(caller: Reader, services: Services) -> Sites:
    """List all sites, by name."""
    return Sites(sites=list((await services.places.map()).sites.values()))


@router.get("/sites/{name}")
async def site(name: Name, caller: Reader, services: Services) -> Site:
    """Return one site."""
    return await services.places.site(name)


@router.put("/sites/{name}")
async def put_site(name: Name, site: Site, caller: Curator, services: Services) -> Site:
    """Create or change a site."""
    return await services.places.put_site(caller.subject, _called(site, name))


@router.delete("/sites/{name}", status_code=status.HTTP_204_NO_CONTENT)
async def remove_site(name: Name, caller: Curator, services: Services) -> None:
    """Delete a site that has no endpoints."""
    await services.places.remove_site(caller.subject, name)


@router.get("/endpoints")
async def endpoints(caller: Reader, services: Services) -> Endpoints:
    """List all endpoints, by name."""
    return Endpoints(endpoints=[placed.endpoint for placed in (await services.places.map()).by_name.values()])


@router.get("/endpoints/{name}")
async def endpoint(name: Name, caller: Reader, services: Services) -> Endpoint:
    """Return one endpoint."""
    return await services.places.endpoint(name)


@router.put("/endpoints/{name}")
async def put_endpoint(name: Name, endpoint: Endpoint, caller: Curator, services: Services) -> Endpoint:
    """Create or change an endpoint. An admin may give it a private or loopback address.

    Only admins may allow delegation to an endpoint, or change its address if its collections use a credential.
    """
    return await services.places.put_endpoint(caller.subject, _called(endpoint, name), caller.role)


@router.delete("/endpoints/{name}", status_code=status.HTTP_204_NO_CONTENT)
async def remove_endpoint(name: Name, caller: Curator, services: Services) -> None:
    """Delete an endpoint that has no replicas and no collections."""
    await services.places.remove_endpoint(caller.subject, name)


def _called(thing: Thing, name: str) -> Thing:
    if thing.name != name:
        raise Invalid(f"the address has the name {name}, but the body has {thing.name}", "send the same name in both")
    return thing
