"""Where a broker knows datasets to be and what to expect of each replica; and what came of it, told back."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from coalloc.brokerclient.connection import LARGEST, NONSENSE, BrokerRefuses, Connection
from coalloc.brokerclient.documents import document, number, whole
from coalloc.checksums import checksum, normalise
from coalloc.config import Access
from coalloc.errors import NothingToFetchFrom
from coalloc.model import Estimate, Origin, Replica, ReplicaSet
from coalloc.urls import without_query

__all__ = ["Broker", "Dataset", "Found"]

PER_NAME = 24 * 1024
"""Bytes of an answer for each name that is asked for, beside what any may have."""
MOST_REPLICAS = 1_000
"""Of one dataset, the best of those that a broker names."""
QUESTIONS = 10_000
"""Forecasts that a broker is asked for at once."""
BULK = 600.0
"""Seconds for one answer where many datasets are told of at once."""


class Found(NamedTuple):
    """A file, what is expected of its replicas by URL, and what the broker calls it; None where no broker was asked.

    `measured` are the URLs of which that rests on transfers over the very path; of the others it is a guess.
    """

    file: ReplicaSet
    expected: Mapping[str, Estimate]
    dataset: str | None = None
    measured: frozenset[str] = frozenset()


class Dataset(NamedTuple):
    """A dataset as the broker lists it."""

    name: str
    size: int | None
    checksums: Mapping[str, str]


class Broker:
    """One broker, as this user may use it."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._broker = Connection(access, "try again, or name replica URLs")

    async def resolve(self, names: Sequence[str]) -> list[Found]:
        """Where these datasets are, the best replica of each first.

        :raises NothingToFetchFrom: when one is unknown or has no replica, or the broker does not answer as one
        """
        wanted: dict[str, Any] = {"names": list(names)}
        if self.access.site:
            wanted["sink"] = self.access.site
        largest = LARGEST + PER_NAME * len(names)
        answer = await self._broker.ask("POST", "/replicas/resolve", largest=largest, json=wanted)
        try:
            if answer.count("\n") > len(names) + 1:  # to read millions of them would take minutes
                raise ValueError("it has more lines than names were asked for")
            *lines, end = (document(line) for line in answer.splitlines())
            if end != {"end": True, "count": len(lines)}:
                raise ValueError("it is not whole")
            if [line["name"] for line in lines] != list(dict.fromkeys(names)):
                raise ValueError("it is about something else")
            return [self._found(line) for line in lines]
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None

    def _found(self, line: Mapping[str, Any]) -> Found:
        name = str(line["name"])
        if line["error"]:
            raise NothingToFetchFrom(f"{self.access.url}: {line['error']['message']}", "see coget search")
        if not line["replicas"]:
            raise NothingToFetchFrom(
                f"{self.access.url} knows no replica of {name} that is available", f"see coget datasets {name}"
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
        return Found(file, {str(each["url"]): _estimate(each) for each in best}, name, measured)

    async def report(self, observations: Sequence[Mapping[str, Any]]) -> int:
        """Tell what transfers achieved, as the broker's interface writes it; how many were news."""
        answer = await self._broker.ask("POST", "/transfers", json=list(observations))
        try:
            return whole(document(answer)["accepted"])
        except NONSENSE as error:
            raise self._broker.nonsense(error) from None

    async def decided(self, decisions: Sequence[Mapping[str, Any]]) -> None:
        """Tell how files were fetched, as the broker's interface writes it."""
        await self._broker.ask("POST", "/decisions", json=list(decisions))

    async def expected(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[Estimate, float | None]]:
        """What to expect of transfers from a server to another, and how old the newest is that this rests on.

        :param pairs: addresses, SCHEME://HOST[:PORT]
        """
        found: list[tuple[Estimate, float | None]] = []
        for begin in range(0, len(pairs), QUESTIONS):
            asked = [{"source": source, "sink": sink} for source, sink in pairs[begin : begin + QUESTIONS]]
            answer = await self._broker.ask("POST", "/forecasts", json={"forecasts": asked})
            try:
                said = document(answer)["forecasts"]
                if len(said) != len(asked):
                    raise ValueError("it is not whole")
                found += [(_estimate({**each, "rationale": each["reason"]}), _age(each["newest_age"])) for each in said]
            except NONSENSE as error:
                raise self._broker.nonsense(error) from None
        return found

    async def mark_bad(self, dataset: str, url: str, reason: str) -> None:
        """Tell that a replica has wrong bytes."""
        await self._broker.ask("POST", "/replicas/bad", json={"dataset": dataset, "url": url, "reason": reason})

    async def register(self, name: str, file: ReplicaSet) -> int:
        """Tell that these replicas are of a dataset, which is made if need be; how many of them were news.

        :raises BrokerRefuses: when they contradict what is known, or a server is none of the broker's endpoints
        """
        news, refused = await self.register_all([(name, file)])
        for error in refused.values():
            raise error
        return news

    async def register_all(self, files: Sequence[tuple[str, ReplicaSet]]) -> tuple[int, dict[str, BrokerRefuses]]:
        """The same of many datasets, by name, in one request; and those that are refused, with the reason."""
        lines = "\n".join(json.dumps(_registration(name, file)) for name, file in files)
        answer = await self._broker.ask("POST", "/import", BULK, content=lines)
        try:
            *refused, end = (document(each) for each in answer.splitlines())
            errors = {files[whole(each["line"]) - 1][0]: self._broker.refused(each["error"]) for each in refused}
            return whole(end["changed"]), errors
        except (*NONSENSE, IndexError) as error:
            raise self._broker.nonsense(error) from None

    async def search(self, beginning: str, most: int) -> list[Dataset]:
        """Datasets whose names begin so, by name."""
        params: dict[str, Any] = {"prefix": beginning, "limit": min(most, 1000)}
        found: list[Dataset] = []
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


def _dataset(said: Mapping[str, Any]) -> Dataset:
    sums = {str(name): str(value) for name, value in said["checksums"].items()}
    return Dataset(str(said["name"]), None if said["size"] is None else whole(said["size"]), sums)


def _registration(name: str, file: ReplicaSet) -> dict[str, Any]:
    """A line of an import."""
    return {
        "name": name,
        "size": file.size,
        "checksums": {each.algorithm: each.value for each in file.checksums},
        "replicas": [{"url": without_query(replica.url)} for replica in file.replicas],
    }


def _age(said: Any) -> float | None:
    """Seconds; none when a broker's clock is ahead of another one's."""
    return None if said is None else number(max(said, 0))


def _estimate(said: Mapping[str, Any]) -> Estimate:
    """What is expected of a replica. :raises ValueError: for what nobody can expect"""
    setup = None if said["setup_seconds"] is None else number(said["setup_seconds"])
    rate, reason = said["rate"], str(said["rationale"])
    if rate is None:
        return Estimate(setup, reason=reason)
    low, middle, high = (number(rate[name]) for name in ("p10", "p50", "p90"))
    if not 1e-3 <= low <= middle <= high <= 1e15:
        raise ValueError(f"rates of {low}, {middle} and {high}")
    return Estimate(setup, middle, reason, (low, high))
