"""Search for replicas at or below a path of an endpoint."""

from sqlalchemy import func, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.schema.catalogue import datasets, replicas

__all__ = ["lies_below"]


async def lies_below(connection: AsyncConnection, endpoint: int, path: str) -> bool:
    """Return whether an endpoint has any replica at a path or below it; an empty path stands for the whole endpoint.

    :param path: path from the endpoint's folder, without slashes at its ends
    """
    place = func.ltrim(func.coalesce(replicas.c.path, datasets.c.name), "/")
    below = or_(literal(not path), place == path, func.substr(place, 1, len(path) + 1) == f"{path}/")
    asked = select(replicas.c.dataset_id).join(datasets).where(replicas.c.endpoint_id == endpoint, below).limit(1)
    return (await connection.execute(asked)).first() is not None
