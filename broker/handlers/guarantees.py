"""Promised finish times."""

from typing import Annotated, Any

from fastapi import Path, Query, Response, status
from fastapi.responses import JSONResponse

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Transferrer
from broker.handlers.routers import Before, Limit, own_router
from broker.models.base import Fault, Size, Wire
from broker.models.guarantees import Guarantee, RefusedGuarantee, WantedGuarantee
from broker.models.names import Who
from coalloc.util import human

__all__ = ["router"]

router = own_router("guarantees")
Number = Annotated[int, Path(ge=1, lt=2**63)]
REFUSED: dict[int | str, dict[str, Any]] = {409: {"model": RefusedGuarantee}}


class GuaranteePage(Wire):
    """A page of promises and refusals; `next` is the `before` of the following page."""

    guarantees: list[Guarantee]
    next: int | None


class TransferEnd(Wire):
    """The end of a transfer that has a promise; it failed if it is not complete."""

    complete: bool = True


class TransferProgress(Wire):
    """The bytes that a running transfer still lacks."""

    bytes_left: Size


@router.post("/guarantees", status_code=status.HTTP_201_CREATED, response_model=Guarantee, responses=REFUSED)
async def ask(wanted: WantedGuarantee, caller: Transferrer, services: Services) -> Guarantee | Response:
    """Promise that bytes arrive by a time, and reserve shares of links for it; or refuse, with what would hold.

    The client reports at least every five minutes how much is missing, and finally the end; otherwise the promise
    expires.
    """
    made, earliest, considered = await services.guarantees.admit(caller, wanted)
    if made.outcome != "refused":
        return made
    chance, sure = human.probability(made.chance), f"{100 * wanted.sure:g} %"
    fault = Fault(
        code="not_guaranteed",
        message=f"{made.bytes} bytes arrive in time with a probability of {chance}, not {sure}",
        remedy="use the time in earliest or a later one, a lower sure, or more sources",
    )
    refused = RefusedGuarantee(error=fault, chance=made.chance, earliest=earliest, sources=list(considered))
    return JSONResponse(refused.model_dump(), status.HTTP_409_CONFLICT)


@router.get("/guarantees")
async def guarantees(
    caller: Reader,
    services: Services,
    owner: Annotated[Who | None, Query(description="for admins: the owner; * for all owners")] = None,
    before: Before = None,
    limit: Limit = 100,
) -> GuaranteePage:
    """List the caller's promises and refusals, the newest first; admins can name another owner."""
    listed = None if owner == "*" else owner or caller.subject
    page = await services.guarantees.page(caller, listed, before, limit)
    return GuaranteePage.model_construct(guarantees=page, next=page[-1].id if len(page) == limit else None)


@router.get("/guarantees/{number}")
async def guarantee(number: Number, caller: Reader, services: Services) -> Guarantee:
    """Return one promise."""
    return await services.guarantees.one(caller, number)


@router.post("/guarantees/{number}/progress")
async def progress(number: Number, moved: TransferProgress, caller: Transferrer, services: Services) -> Guarantee:
    """Report how many bytes a running transfer lacks; the answer has the present probability as `chance_now`."""
    return await services.guarantees.report(caller, number, moved.bytes_left)


@router.post("/guarantees/{number}/ended")
async def ended(
    number: Number, caller: Transferrer, services: Services, result: TransferEnd | None = None
) -> Guarantee:
    """Report that all bytes have arrived, or that the transfer failed. A promise that is over does not change."""
    return await services.guarantees.end(caller, number, result is None or result.complete)


@router.delete("/guarantees/{number}", status_code=status.HTTP_204_NO_CONTENT)
async def give_up(number: Number, caller: Transferrer, services: Services) -> None:
    """Give up a promise, so that others can have its shares. A promise that is over does not change."""
    await services.guarantees.remove(caller, number)
