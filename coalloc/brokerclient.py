"""The broker over HTTP: where datasets are and what to expect of each replica; and what came of it, told back.

Nothing here holds up a transfer for long: who cannot be told now is told next time (`coalloc.outbox`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from coalloc.config import Access
from coalloc.errors import CoallocError, NotAllowed, NothingToFetchFrom, UsageError
from coalloc.model import Checksum, Estimate, Replica, ReplicaSet

if TYPE_CHECKING:
    import httpx

__all__ = ["Broker", "BrokerRefuses", "Dataset", "Found"]

SECONDS = 10.0
"""For connecting, and between bytes."""
PATH = "/broker/v1"


class BrokerRefuses(CoallocError):
    """The broker says that what it was told makes no sense: telling it again is of no use."""

    status = 2
    code = "broker_refuses"


class Found(NamedTuple):
    """A file, what is expected of its replicas by URL, and what the broker calls it; None where no broker was asked."""

    file: ReplicaSet
    expected: Mapping[str, Estimate]
    dataset: str | None = None


class Dataset(NamedTuple):
    """A dataset as the broker lists it."""

    name: str
    size: int | None
    checksums: Mapping[str, str]


class Broker:
    """One broker, as this user may use it."""

    def __init__(self, access: Access) -> None:
        self.access = access

    async def resolve(self, names: Sequence[str]) -> list[Found]:
        """Where these datasets are, the best replica of each first.

        :raises NothingToFetchFrom: when one is unknown or has no replica, or the broker does not answer
        """
        wanted: dict[str, Any] = {"names": list(names)}
        if self.access.site:
            wanted["sink"] = self.access.site
        answer = await self._ask("POST", "/replicas/resolve", json=wanted)
        lines = [json.loads(line) for line in answer.text.splitlines()]
        if not lines or lines[-1].get("end") is not True:
            raise NothingToFetchFrom(f"the answer of {self.access.url} is not whole", "try again")
        return [self._found(line) for line in lines[:-1]]

    def _found(self, line: Mapping[str, Any]) -> Found:
        name = line["name"]
        if line.get("error"):
            raise NothingToFetchFrom(f"{self.access.url}: {line['error']['message']}", "see coget search")
        if not line["replicas"]:
            raise NothingToFetchFrom(
                f"{self.access.url} knows no replica of {name} that is available", f"see coget datasets {name}"
            )
        replicas = tuple(Replica(each["url"], each["rank"]) for each in line["replicas"])
        checksums = tuple(Checksum(*pair) for pair in line["checksums"].items())
        plain = name.rpartition(":")[2].rpartition("/")[2]
        file = ReplicaSet(plain, replicas, line["size"], checksums)
        return Found(file, {each["url"]: _estimate(each) for each in line["replicas"]}, name)

    async def report(self, observations: Sequence[Mapping[str, Any]]) -> None:
        """Tell what transfers achieved, as the broker's interface writes it."""
        await self._ask("POST", "/transfers", json=list(observations))

    async def mark_bad(self, dataset: str, url: str, reason: str) -> None:
        """Tell that a replica has wrong bytes."""
        await self._ask("POST", "/replicas/bad", json={"dataset": dataset, "url": url, "reason": reason})

    async def register(self, name: str, file: ReplicaSet) -> int:
        """Tell that these replicas are of a dataset, which is made if need be; how many of them were news.

        :raises BrokerRefuses: when they contradict what is known, or a server is none of the broker's endpoints
        """
        line = {
            "name": name,
            "size": file.size,
            "checksums": {checksum.algorithm: checksum.value for checksum in file.checksums},
            "replicas": [{"url": replica.url} for replica in file.replicas],
        }
        answer = await self._ask("POST", "/import", content=json.dumps(line))
        *refused, end = (json.loads(each) for each in answer.text.splitlines())
        for each in refused:
            raise BrokerRefuses(f"{self.access.url}: {each['error']['message']}", each["error"]["remedy"])
        return int(end["changed"])

    async def search(self, beginning: str, most: int) -> list[Dataset]:
        """Datasets whose names begin so, by name."""
        params: dict[str, Any] = {"prefix": beginning, "limit": min(most, 1000)}
        found: list[Dataset] = []
        while len(found) < most:
            page = (await self._ask("GET", "/datasets", params=params)).json()
            found += [Dataset(each["name"], each["size"], each["checksums"]) for each in page["datasets"]]
            if page["next"] is None:
                break
            params["after"] = page["next"]
        return found[:most]

    async def _ask(self, method: str, path: str, **what: Any) -> "httpx.Response":
        import httpx

        headers = {"Authorization": f"Bearer {self.access.token}"} if self.access.token else {}
        try:
            # Redirects are not followed: they could lead the token elsewhere.
            async with httpx.AsyncClient(timeout=SECONDS, headers=headers) as client:
                answer = await client.request(method, f"{self.access.url}{PATH}{path}", **what)
        except httpx.HTTPError as error:
            said = str(error) or type(error).__name__
            raise NothingToFetchFrom(
                f"the broker {self.access.url} does not answer: {said}", "try again, or name replica URLs"
            ) from None
        self._refuse(answer)
        return answer

    def _refuse(self, answer: "httpx.Response") -> None:
        if answer.is_success:
            return
        message, remedy = _said(answer)
        message = f"{self.access.url}: {message}"
        if answer.status_code in (401, 403):
            raise NotAllowed(message, remedy or "ask its admin for a token, and put it into tokens.toml")
        if answer.status_code in (400, 404, 409, 422):
            raise BrokerRefuses(message, remedy)
        if answer.is_redirect:
            raise UsageError(f"{self.access.url} leads to {answer.headers.get('location')}", "name that one instead")
        raise NothingToFetchFrom(message, remedy or "try again later")


def _said(answer: "httpx.Response") -> tuple[str, str]:
    """The broker's message and remedy; something like it when this is no broker."""
    try:
        error = answer.json()["error"]
        return str(error["message"]), str(error.get("remedy", ""))
    except (ValueError, KeyError, TypeError):
        return f"it says {answer.status_code} {answer.reason_phrase}, which no broker does", "check its address"


def _estimate(said: Mapping[str, Any]) -> Estimate:
    rate = said["rate"]
    if rate is None:
        return Estimate(said["setup_seconds"], reason=said["rationale"])
    return Estimate(said["setup_seconds"], rate["p50"], said["rationale"], (rate["p10"], rate["p90"]))
