"""Plans for fetching a dataset, computed by the code of `coget plan`."""

from broker.errors import Conflict, NotFound
from broker.models.callers import Caller
from broker.models.forecasts import Resolved
from broker.models.plans import DatasetPlan, PlanRequest, ReplicaShare
from broker.services.auth.permissions import NOBODY
from broker.services.catalogue.replicas import Replicas
from coalloc.api import planned
from coalloc.model.replicas import Replica, ReplicaSet

__all__ = ["Plans"]


class Plans:
    """The planning of single files."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def make(self, request: PlanRequest, sink: str, caller: Caller = NOBODY) -> DatasetPlan:
        """Plan which share of a dataset each source should deliver.

        :raises NotFound: when the dataset does not exist, or has no available replica
        :raises Conflict: when its size is unknown
        """
        resolved = await self._replicas.one(request.name, sink, caller)
        size = _usable(resolved)
        file = ReplicaSet(resolved.name, tuple(Replica(each.url) for each in resolved.replicas), size)
        made = planned(file, [candidate.estimate for candidate in resolved.replicas], request.strategy)
        return DatasetPlan.model_construct(
            name=resolved.name,
            size=size,
            sink=sink,
            strategy=made.strategy,
            seconds=made.seconds,
            seconds_p10_p90=made.bounds,
            rationale=made.rationale,
            shares=[
                ReplicaShare.model_construct(
                    url=candidate.url,
                    endpoint=candidate.endpoint,
                    site=candidate.site,
                    bytes=share.bytes,
                    fraction=share.fraction,
                    rate=candidate.rate,
                    setup_seconds=candidate.setup_seconds,
                    rationale=candidate.rationale,
                    routes=list(candidate.routes),
                )
                for candidate, share in zip(resolved.replicas, made.shares, strict=True)
            ],
        )


def _usable(resolved: Resolved) -> int:
    """Return the size of a dataset, if a plan is possible.

    :raises NotFound: when it has no available replica
    :raises Conflict: when its size is unknown
    """
    if not resolved.replicas:
        raise NotFound(
            f"{resolved.name} has no available replica",
            f"get their states with GET /broker/v1/datasets/{resolved.name}",
        )
    if resolved.size is None:
        raise Conflict(f"the size of {resolved.name} is unknown", f"set it: PUT /broker/v1/datasets/{resolved.name}")
    return resolved.size
