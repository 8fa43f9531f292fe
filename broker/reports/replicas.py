"""Replicas that are bad or unavailable, and endpoints whose transfers fail, with the failed transfers as evidence."""

import time
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from broker.models.base import Wire
from broker.models.catalogue import Endpoint
from broker.reports.archive import Archive, Scope
from broker.reports.document import Column, Fact, Report, Table, Value
from broker.services.catalogue.enclosing import visible_replicas
from broker.storage.replica_problems import AddressFailures, Suspect, Suspects

__all__ = ["ReplicasQuery", "make"]

State = Literal["BAD", "SUSPICIOUS", "TEMPORARY_UNAVAILABLE", "UNAVAILABLE", "COPYING", "BEING_DELETED"]
DAY = 86_400.0
MOST = 500
FEWEST = 5
"""Fewest transfers for a reliable share."""
REPLICAS = (
    Column("dataset", "Dataset"),
    Column("endpoint", "Endpoint"),
    Column("site", "Site"),
    Column("state", "State"),
    Column("since", "Since", "moment"),
    Column("reason", "Reason"),
    Column("badly", "Failed transfers", "count"),
    Column("corrupt", "With wrong bytes", "count"),
    Column("error", "Last error"),
)
ENDPOINTS = (
    Column("endpoint", "Endpoint"),
    Column("site", "Site"),
    Column("address", "Address"),
    Column("transfers", "Transfers", "count"),
    Column("badly", "Failed", "count"),
    Column("share", "Share", "share"),
    Column("corrupt", "With wrong bytes", "count"),
    Column("last", "Last", "moment"),
    Column("error", "Last error"),
)


class ReplicasQuery(Wire):
    """The state of replicas, and the number of days whose failed transfers count."""

    state: Annotated[State | None, Field(description="Only replicas in this state.")] = None
    days: Annotated[int, Field(ge=1, le=366, description="Days for which failed transfers count.")] = 30


class Evidence(NamedTuple):
    """Failed transfers, numbers of all transfers, and endpoints, each by server address."""

    troubles: Mapping[str, AddressFailures]
    transfers: Mapping[str, int]
    endpoints: Mapping[str, Endpoint]


async def make(archive: Archive, scope: Scope, query: ReplicasQuery) -> Report:
    """Create the report: unavailable replicas, with failed transfers among those that the caller may see."""
    now = time.time()
    since = now - query.days * DAY
    known = {each.endpoint.source: each.endpoint for each in (await archive.places.map()).by_id.values()}
    async with archive.database.read() as connection:
        stored = Suspects(connection, scope.subject)
        counts, newest = await stored.counts(), await stored.replicas(query.state, MOST)
        found = await visible_replicas(connection, await archive.places.map(), newest, scope.caller)
        troubles = {each.source: each for each in await stored.troubles(since)}
        evidence = Evidence(troubles, await stored.transfers(since), known)
    days = "day" if query.days == 1 else f"{query.days} days"
    lead = f"Replicas that clients do not get, with the reasons, and failed transfers by endpoint in the last {days}."
    facts = [Fact("Bad replicas", counts.get("BAD", 0), "count")]
    facts.append(Fact("Other unavailable replicas", sum(counts.values()) - counts.get("BAD", 0), "count"))
    facts.append(Fact("Failed transfers", sum(each.badly for each in troubles.values()), "count"))
    facts.append(Fact("Transfers with wrong bytes", sum(each.corrupt for each in troubles.values()), "count"))
    note = "" if found else "All replicas are available." if not counts else "No replica is in this state."
    if len(newest) == MOST:
        note = f"Only the {MOST} replicas whose state changed last were searched; GET /broker/v1/replicas has them all."
    return Report(
        "replicas", "Replicas", lead, now, facts, tables=[_replicas(found, evidence, note), _endpoints(evidence)]
    )


def _replicas(found: list[Suspect], evidence: Evidence, note: str) -> Table:
    named = {each.name: each for each in evidence.endpoints.values()}
    rows = [_replica(each, named.get(each.endpoint), evidence.troubles) for each in found]
    return Table("replicas", "Replicas that are not available", REPLICAS, rows, note)


def _replica(each: Suspect, endpoint: Endpoint | None, troubles: Mapping[str, AddressFailures]) -> list[Value]:
    trouble = troubles.get(endpoint.source) if endpoint else None
    row: list[Value] = [each.dataset, each.endpoint, endpoint.site if endpoint else ""]
    row += [each.state, each.changed_at, each.reason]
    return row + ([trouble.badly, trouble.corrupt, trouble.error or ""] if trouble else [0, 0, ""])


def _endpoints(evidence: Evidence) -> Table:
    worst = sorted(evidence.troubles.values(), key=lambda each: (-each.corrupt, -each.badly, each.source))
    rows = [_endpoint(each, evidence) for each in worst]
    note = f"Shares are shown from {FEWEST} transfers on." if rows else "No transfer failed."
    return Table("endpoints", "Failed transfers by endpoint", ENDPOINTS, rows, note)


def _endpoint(each: AddressFailures, evidence: Evidence) -> list[Value]:
    endpoint, transfers = evidence.endpoints.get(each.source), evidence.transfers.get(each.source, 0)
    share = min(1.0, each.badly / transfers) if transfers >= FEWEST else None
    row: list[Value] = [endpoint.name if endpoint else "", endpoint.site if endpoint else "", each.source]
    return [*row, transfers, each.badly, share, each.corrupt, each.last_at, each.error or ""]
