"""GA4GH's Data Repository Service (DRS) 1.5, read-only, for existing clients; documents and errors as DRS defines them.

A DRS object is a dataset, its id the dataset's name; an access method is a replica, its id the endpoint's name.
"""

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Path, Request

from broker.dependencies.context import Home, Services
from broker.dependencies.route_policies import Guarded, Open, Reader
from broker.errors import NotFound
from broker.factory import Factory
from broker.models.base import Wire
from broker.models.callers import Caller
from broker.models.names import Did, Named

__all__ = ["Error", "router"]

router = APIRouter(prefix="/ga4gh/drs/v1", tags=["ga4gh"], route_class=Guarded)
Id = Annotated[Did, Path()]
NAMES = {"sha224": "sha-224", "sha256": "sha-256", "sha384": "sha-384", "sha512": "sha-512"}
"""DRS names of checksum algorithms that differ from the broker's."""

TYPES = {"ftp": "ftp", "gsiftp": "gsiftp", "http": "https", "https": "https"}
"""DRS types by URL scheme. DRS has no type for plain HTTP, but the URL shows it."""


class Error(Wire):
    """An error in the form of DRS."""

    msg: str
    status_code: int


ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": Error} for status in (400, 401, 403, 404, 422, 429, 503)}


@router.get("/service-info")
async def service_info(caller: Open, home: Home) -> dict[str, Any]:
    """Describe this service."""
    return {
        "id": "coget.broker",
        "name": "coget broker",
        "type": {"group": "org.ga4gh", "artifact": "drs", "version": "1.5.0"},
        "organization": {"name": "coget", "url": home},
        "version": version("coget"),
        "maxBulkRequestLength": 1,
        "drs": {"maxBulkRequestLength": 1},
    }


@router.get("/objects/{name:path}/access/{endpoint}", responses=ERRORS)
async def access(
    name: Id, endpoint: Annotated[Named, Path()], request: Request, caller: Reader, services: Services, home: Home
) -> dict[str, Any]:
    """Return the URL of one replica; or, as ids may contain `/access/`, the object whose id is this path."""
    whole = f"{name}/access/{endpoint}"
    if await _called(whole, request, caller, services):
        return await drs_object(whole, caller, services, home)
    for candidate in (await services.replicas.one(name, caller.site, caller)).replicas:
        if candidate.endpoint == endpoint:
            return {"url": candidate.url}
    raise NotFound(f"there is no available replica of {name} at {endpoint}")


async def _called(whole: str, request: Request, caller: Caller, services: Factory) -> bool:
    """Return whether the path names the object with this id rather than a replica.

    Clients should write the slashes of an id as %2F. Otherwise, an existing replica takes precedence over an existing
    object.
    """
    raw: bytes = request.scope.get("raw_path") or b""
    if not raw.lower().partition(b"?")[0].endswith(b"%2f" + whole.rpartition("/")[2].lower().encode()):
        name, _, endpoint = whole.rpartition("/access/")
        if await _replica(name, endpoint, caller, services):
            return False
    try:
        await services.catalogue.dataset(whole)
    except NotFound:
        return False
    return True


async def _replica(name: str, endpoint: str, caller: Caller, services: Factory) -> bool:
    try:
        _, replicas = await services.catalogue.dataset(name, caller)
    except NotFound:
        return False
    return any(each.endpoint == endpoint for each in replicas)


@router.get("/objects/{name:path}", responses=ERRORS)
async def drs_object(name: Id, caller: Reader, services: Services, home: Home) -> dict[str, Any]:
    """Return a dataset with the URLs of its replicas, the best first."""
    resolved = await services.replicas.one(name, caller.site, caller)
    if resolved.size is None or not resolved.checksums:
        raise NotFound(f"{name} has no size or no checksum yet, which DRS requires")
    created = await services.catalogue.created_at(name)
    return {
        "id": name,
        "name": name.rpartition(":")[2].rpartition("/")[2],
        "self_uri": f"drs://{urlsplit(home).netloc}/{quote(name, safe='')}",
        "size": resolved.size,
        "created_time": datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z"),
        "checksums": [
            {"type": NAMES.get(algorithm, algorithm), "checksum": value}
            for algorithm, value in resolved.checksums.items()
        ],
        "access_methods": [
            {
                "type": TYPES[candidate.url.partition(":")[0]],
                "access_url": {"url": candidate.url},
                "access_id": candidate.endpoint,
                "region": candidate.site,
            }
            for candidate in resolved.replicas
        ],
    }
