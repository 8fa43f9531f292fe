"""Promised finish times: requests, promises with their reserved shares, and refusals."""

from typing import Annotated, Literal, NamedTuple, Self
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from broker.models.base import Fault, Moment, Size, Wire
from broker.models.callers import Role
from broker.models.names import Did, Whereto
from coalloc.guarantees.deadline import Grade
from coalloc.guarantees.finish_admission import PromisedShare

__all__ = [
    "MOST_SOURCES",
    "Guarantee",
    "GuaranteedShare",
    "NewGuarantee",
    "Outcome",
    "PromisedLink",
    "RefusedGuarantee",
    "WantedGuarantee",
    "WatchedDeadline",
]

MOST_FILES, MOST_SOURCES = 1000, 16
Sure = Annotated[float, Field(ge=0.5, le=0.999, allow_inf_nan=False)]
Outcome = Literal["open", "kept", "broken", "given up", "expired", "refused"]
"""Outcomes of promises.

- `open`: its shares are reserved
- `expired`: its client was silent for too long before the deadline
- `refused`: it was never made
"""
Place = Annotated[str, StringConstraints(min_length=1, max_length=3000)]
"""The name of an endpoint, or a URL, of which only scheme, host and port count."""


class WantedGuarantee(Wire):
    """A request for a promise: all bytes from some of the sources to the sink by a time.

    - `files`: datasets, instead of `bytes`; without `sources`, those are the endpoints that have all of them
    - `sink`: site or server that the bytes go to; by default the caller's site
    - `sure`: probability with which `by` is to be kept
    - `request_id`: a repeated request with the same id returns the same promise
    """

    bytes: Annotated[Size, Field(gt=0)] | None = None
    files: Annotated[tuple[Did, ...], Field(max_length=MOST_FILES)] = ()
    sources: Annotated[tuple[Place, ...], Field(max_length=MOST_SOURCES)] = ()
    sink: Whereto | None = None
    by: Moment
    sure: Sure = 0.95
    request_id: UUID | None = None

    @model_validator(mode="after")
    def _sized(self) -> Self:
        if (self.bytes is None) != bool(self.files):
            raise ValueError("give either bytes or files")
        if self.bytes is not None and not self.sources:
            raise ValueError("`bytes` needs `sources`")
        return self


class GuaranteedShare(Wire):
    """A share of a link that is reserved until the deadline, in bytes per second, from the moment `since`."""

    source: str
    rate: float
    since: Moment


class Guarantee(Wire):
    """A promise, or a refusal, at one moment.

    - `bytes_left`: as last reported
    - `chance`: probability when it was made, or refused; `chance_now`: at the last report
    - `t50`, `t95`: times by which it ends with these probabilities if it uses all that is free; None if never
    - `expires_at`: when the promise ends unless its client reports; None for tasks and refusals
    - `task`: task that it belongs to
    """

    id: int
    owner: str
    task: str | None
    bytes: Size
    bytes_left: Size
    sink: str
    by: Moment
    sure: float
    chance: float
    chance_now: float
    t50: Moment | None
    t95: Moment | None
    made_at: Moment
    expires_at: Moment | None
    ended_at: Moment | None
    outcome: Outcome
    shares: list[GuaranteedShare]


class RefusedGuarantee(Wire):
    """The answer to a request that cannot be met.

    - `chance`: probability with which `by` would be kept
    - `earliest`: the time that would be promised within the next half minute; None if there is none
    - `sources`: the sources that were considered, as the request names them; nothing is known about the others
    """

    error: Fault
    chance: float
    earliest: Moment | None
    sources: list[str]


class NewGuarantee(NamedTuple):
    """A promise to store, or with the outcome `refused`, a refusal."""

    owner: str
    request_id: str | None
    task_id: str | None
    bytes: int
    sink: str
    server: str
    made_at: float
    deadline: float
    sure: float
    chance: float
    t50: float | None
    t95: float | None
    expires_at: float | None
    outcome: Literal["refused"] | None


class WatchedDeadline(NamedTuple):
    """An active transfer with a deadline that its owner has chosen.

    - `listed`: whether all its files are known
    - `grade`: grade of the deadline as last told; None if nothing was told yet
    - `promise`: its open promise; None if it has none
    - `decided_bytes`: bytes for which a promise for this deadline was made or refused; None: neither
    """

    id: str
    owner: str
    role: Role
    source: str
    destination: str
    deadline: float
    grade: Grade | None
    bytes: int
    bytes_transferred: int
    files: int
    listed: bool
    promise: int | None
    decided_bytes: int | None

    @property
    def left(self) -> int:
        """The bytes that are known to be missing."""
        return max(0, max(self.bytes, self.decided_bytes or 0) - self.bytes_transferred)

    @property
    def sized(self) -> bool:
        """Return whether all its bytes are known."""
        return self.listed or self.decided_bytes is not None


class PromisedLink(NamedTuple):
    """A share in the ledger, and the link that it belongs to; `server` is the destination's server, if it is named."""

    guarantee: int
    source: str
    sink: str
    server: str
    share: PromisedShare
