"""Client for the broker's catalogue: find replicas and forecasts, report transfers, register datasets."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from coalloc.broker_connection import LARGEST, NONSENSE, BrokerConnection, BrokerRefuses
from coalloc.config import BrokerAccess
from coalloc.errors import NothingToFetchFrom
from coalloc.model.forecasts import Estimate, FoundReplicas
from coalloc.model.replicas import Origin, Replica, ReplicaSet
from coalloc.safe_text import without_query
from coalloc.util.checksums import checksum, normalise
from coalloc.util.documents import document, number, whole

__all__ = ["Broker", "DatasetEntry"]

PER_NAME = 24 * 1024
"""Bytes that an answer may have per requested name, in addition to the limit for any answer."""
MOST_REPLICAS = 1_000
"""Most replicas used per dataset; the best-ranked ones are kept."""
QUESTIONS = 10_000
"""Most forecasts requested at once."""
BULK = 600.0
"""Time limit in seconds for an answer about many datasets."""


class DatasetEntry(NamedTuple):
    """A dataset as listed by the broker."""

    name: str
    size: int | None
    checksums: Mapping[str, str]


class Broker:
    """One broker, accessed as this user."""

    def __init__(self, access: BrokerAccess) -> None:
        self.access = access
        self._broker = BrokerConnection(access, "try again, or give replica URLs")

    async def resolve(self, names: Sequence[str]) -> list[FoundReplicas]:
        """Return the replicas of these datasets, the best replica of each first.

        :raises NothingToFetchFrom: when a dataset is unknown or has no replica, or the answer is malformed
        """
        wanted: dict[str, Any] = {"names": list(names)}
        if self.access.site:
            wanted["sink"] = self.access.site
        largest = LARGEST + PER_NAME * len(names)
        answer = await self._broker.ask("POST", "/replicas/resolve", largest=largest, json=wanted)
        try:
            if answer.count("\n") > len(names) + 1:  # parsing millions of lines would take minutes
                raise ValueError("it has more lines than requested names")
            *lines, end = (document(line) for line in answer.splitlines())
            if end != {"end": True, "count": len(lines)}:
                raise ValueError("it is incomplete")
            if [line["name"] for line in lines] != list(dict.fromkeys(names)):
                raise ValueError("it is about another dataset")
            return [self._found(line) for line in lines]
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None

    def _found(self, line: Mapping[str, Any]) -> FoundReplicas:
        name = str(line["name"])
        if line["error"]:
            raise NothingToFetchFrom(f"{self.access.url}: {line['error']['message']}", "find it with coget search")
        if not line["replicas"]:
            raise NothingToFetchFrom(
                f"{self.access.url} has no available replica of {name}",
                f"check them with coget datasets {name}",
            )
        best = sorted(line["replicas"], key=lambda each: whole(each["rank"]))[:MOST_REPLICAS]
        origin = Origin("server", self._broker.address)
        replicas = tuple(Replica(str(each["url"]), each["rank"], origin=origin) for each in best)
        known = [pair for pair in line["checksums"].items() if normalise(pair[0])]
        size = None if line["size"] is None else whole(line["size"])
        plain = name.rpartition(":")[2].rpartition("/")[2]
        checksums = tuple(checksum(*pair) for pair in known)
        vouched = self._broker.secure and bool(checksums)
        origin = Origin("server", self._broker.address)
        file = ReplicaSet(plain, replicas, size, checksums, vouched=vouched, origin=origin)
        measured = frozenset(str(each["url"]) for each in best if each["measured"])
        return FoundReplicas(file, {str(each["url"]): _estimate(each) for each in best}, name, measured)

    async def report(self, observations: Sequence[Mapping[str, Any]]) -> int:
        """Report the results of transfers, in the format of the broker's interface; return how many were new."""
        answer = await self._broker.ask("POST", "/transfers", json=list(observations))
        try:
            return whole(document(answer)["accepted"])
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None

    async def decided(self, decisions: Sequence[Mapping[str, Any]]) -> None:
        """Report the decisions of transfers (`coalloc.broker_client.decision`)."""
        await self._broker.ask("POST", "/decisions", json=list(decisions))

    async def measured(self, routes: Sequence[Mapping[str, Any]]) -> None:
        """Report measured routes over depots."""
        await self._broker.ask("POST", "/depot-routes", json={"sink": self.access.site or "", "routes": list(routes)})

    async def expected(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[Estimate, float | None]]:
        """Return the forecast for each pair of servers, and the age in seconds of the newest transfer behind it.

        :param pairs: addresses of source and sink, SCHEME://HOST[:PORT]
        """
        found: list[tuple[Estimate, float | None]] = []
        for begin in range(0, len(pairs), QUESTIONS):
            requests = [{"source": source, "sink": sink} for source, sink in pairs[begin : begin + QUESTIONS]]
            answer = await self._broker.ask("POST", "/forecasts", json={"forecasts": requests})
            try:
                forecasts = document(answer)["forecasts"]
                if len(forecasts) != len(requests):
                    raise ValueError("it is incomplete")
                found += [
                    (_estimate({**each, "rationale": each["reason"]}), _age(each["newest_age"])) for each in forecasts
                ]
            except NONSENSE as error:
                raise self._broker.nonsense(error) from None
        return found

    async def mark_bad(self, dataset: str, url: str, reason: str) -> None:
        """Report that a replica has wrong bytes."""
        await self._broker.ask("POST", "/replicas/bad", json={"dataset": dataset, "url": url, "reason": reason})

    async def register(self, name: str, file: ReplicaSet) -> int:
        """Register replicas of a dataset, which is created if needed; return how many were new.

        :raises BrokerRefuses: when they contradict known facts, or a server is not one of the broker's endpoints
        """
        news, refused = await self.register_all([(name, file)])
        for error in refused.values():
            raise error
        return news

    async def register_all(self, files: Sequence[tuple[str, ReplicaSet]]) -> tuple[int, dict[str, BrokerRefuses]]:
        """Register replicas of many datasets in one request; return how many were new, and the errors by dataset."""
        lines = "\n".join(json.dumps(_registration(name, file)) for name, file in files)
        answer = await self._broker.ask("POST", "/import", BULK, content=lines)
        try:
            *refused, end = (document(each) for each in answer.splitlines())
            errors = {files[whole(each["line"]) - 1][0]: self._broker.refused(each["error"]) for each in refused}
            return whole(end["changed"]), errors
        except (*NONSENSE, IndexError) as error:
            raise self._broker.nonsense(error) from None

    async def search(self, beginning: str, most: int) -> list[DatasetEntry]:
        """Return the datasets whose names begin with this text, sorted by name."""
        params: dict[str, Any] = {"prefix": beginning, "limit": min(most, 1000)}
        found: list[DatasetEntry] = []
        while len(found) < most:
            answer = await self._broker.ask("GET", "/datasets", params=params)
            try:
                page = document(answer)
                new = [_dataset(each) for each in page["datasets"]]
                after = page["next"]
            except NONSENSE as error:
                raise self._broker.nonsense(error) from None
            found += new
            if after is None or not new:
                break
            params["after"] = after
        return found[:most]


def _dataset(entry: Mapping[str, Any]) -> DatasetEntry:
    sums = {str(name): str(value) for name, value in entry["checksums"].items()}
    return DatasetEntry(str(entry["name"]), None if entry["size"] is None else whole(entry["size"]), sums)


def _registration(name: str, file: ReplicaSet) -> dict[str, Any]:
    """Return one line of an import."""
    return {
        "name": name,
        "size": file.size,
        "checksums": {each.algorithm: each.value for each in file.checksums},
        "replicas": [{"url": without_query(replica.url)} for replica in file.replicas],
    }


def _age(value: Any) -> float | None:
    """Return an age in seconds; 0 for a negative age, which clocks that differ can cause."""
    return None if value is None else number(max(value, 0))


def _estimate(forecast: Mapping[str, Any]) -> Estimate:
    """Return the forecast for a replica. :raises ValueError: for impossible values"""
    setup = None if forecast["setup_seconds"] is None else number(forecast["setup_seconds"])
    rate, reason = forecast["rate"], str(forecast["rationale"])
    if rate is None:
        return Estimate(setup, reason=reason)
    low, middle, high = (number(rate[name]) for name in ("p10", "p50", "p90"))
    if not 1e-3 <= low <= middle <= high <= 1e15:
        raise ValueError(f"impossible forecast rates: p10 {low}, p50 {middle}, p90 {high}")
    return Estimate(setup, middle, reason, (low, high))
