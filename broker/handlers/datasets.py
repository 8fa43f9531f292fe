"""Datasets, with all their replicas."""

from typing import Annotated

from fastapi import Path, Query, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Curator, Reader
from broker.errors import Invalid
from broker.handlers.routers import Limit, own_router
from broker.models.base import Wire
from broker.models.catalogue import CatalogueReplica, Dataset
from broker.models.names import Beginning, Did

__all__ = ["router"]

router = own_router("datasets")
Name = Annotated[Did, Path()]


class Datasets(Wire):
    """A page of datasets; `next` is the `after` of the following page."""

    datasets: list[Dataset]
    next: str | None


class Described(Dataset):
    """A dataset with all its replicas, whatever their state."""

    replicas: list[CatalogueReplica]


@router.get("/datasets")
async def datasets(
    caller: Reader,
    services: Services,
    prefix: Annotated[Beginning | None, Query(description="beginning of names; SCOPE:BEGINNING within a scope")] = None,
    after: Annotated[Did | None, Query()] = None,
    limit: Limit = 100,
) -> Datasets:
    """List datasets by scope and name."""
    page = await services.catalogue.listed(prefix or "", after or "", limit)
    return Datasets.model_construct(datasets=page, next=page[-1].name if len(page) == limit else None)


@router.get("/datasets/{name:path}")
async def dataset(name: Name, caller: Reader, services: Services) -> Described:
    """Return one dataset with all its replicas."""
    found, replicas = await services.catalogue.dataset(name, caller)
    return Described.model_construct(**found.model_dump(), replicas=replicas)


@router.put("/datasets/{name:path}")
async def put_dataset(name: Name, dataset: Dataset, caller: Curator, services: Services) -> Dataset:
    """Create a dataset, or add its missing values. Stored values cannot be changed."""
    if dataset.name != name:
        raise Invalid(f"the address has the name {name}, but the body has {dataset.name}", "send the same name in both")
    return await services.catalogue.put(caller.subject, dataset)


@router.delete("/datasets/{name:path}", status_code=status.HTTP_204_NO_CONTENT)
async def remove_dataset(name: Name, caller: Curator, services: Services) -> None:
    """Delete a dataset and the records of its replicas. No files are deleted."""
    await services.catalogue.remove(caller.subject, name)
