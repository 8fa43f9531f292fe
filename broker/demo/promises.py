"""The promised finish times of the demonstration: kept about as often as they say, with some refusals."""

from random import Random

from broker.demo.made_up_tasks import DESTINATIONS
from broker.demo.places import collection
from broker.demo.world import DAY, PEOPLE, WEEKS, DemoLink, World
from broker.models.guarantees import NewGuarantee
from broker.models.tasks import Task
from broker.storage.database import Database, retried
from broker.storage.guarantees import GuaranteeStore
from broker.storage.tasks import TaskFilter, TaskStore

__all__ = ["promise"]

PROMISES = 450
KEPT = 2000
"""Number of closed promises of a user that are kept; here, all of them."""
WANTED = (0.8, 0.9, 0.95, 0.95, 0.99)
REFUSED, GIVEN_UP = 0.15, 0.05
"""Shares of requests that are refused, and of promises that are given up."""


@retried
async def promise(database: Database, made: World, seed: int, end: float) -> None:
    """Store the promises of clients and of tasks, whose history ends at `end` (seconds since 1970)."""
    chance = Random(f"promises {seed}")
    async with database.write() as connection:
        stored = GuaranteeStore(connection)
        for age in sorted((chance.uniform(0.1, WEEKS * 7) * DAY for _ in range(PROMISES)), reverse=True):
            await _of_client(stored, made, chance, end - age)
        page = await TaskStore(connection).page(TaskFilter(), [("request_time", False)], 100, 0)
        for task in page.tasks:
            if task.completed_at:
                await _of_task(stored, task, made, chance)


async def _of_client(stored: GuaranteeStore, made: World, chance: Random, now: float) -> None:
    size, links = int(chance.lognormvariate(22.5, 1.2)), _links(made, chance)
    seconds = size / sum(link.rate for link in links) * chance.uniform(1.2, 3.0) + 30
    if chance.random() < REFUSED:
        await stored.add(_request(None, chance.choice(PEOPLE), size, links, now, seconds, chance), {}, now, KEPT)
        return
    new = _promised(_request(None, chance.choice(PEOPLE), size, links, now, seconds, chance), chance)
    number = await stored.add(new, _shares(links, size / seconds), now, KEPT)
    if chance.random() < GIVEN_UP:
        await stored.close(number, "given up", now + seconds * chance.random())
    elif chance.random() < new.chance:
        await stored.close(number, "kept", now + seconds * min(0.99, chance.betavariate(6, 3)))
    else:
        await stored.report(number, size // 9, chance.uniform(0.0, 0.4), new.deadline, 1.0)
        await stored.close(number, "broken", new.deadline)


async def _of_task(stored: GuaranteeStore, task: Task, made: World, chance: Random) -> None:
    site = next(DESTINATIONS[name] for name in DESTINATIONS if str(collection(name)) == str(task.destination))
    links = [link for link in made.links if link.sink == site][:1]
    size, now = max(1, task.bytes), task.requested_at
    refused = chance.random() < 2 * REFUSED
    seconds = ((task.completed_at or now) - now) * (chance.uniform(0.4, 1.5) if refused else chance.uniform(0.95, 2.0))
    new = _request(task.id, task.owner, size, links, now, seconds, chance)
    if refused:
        await stored.add(new, {}, now, KEPT)
    else:
        await stored.add(_promised(new, chance), _shares(links, size / seconds), now, KEPT)
        await stored.settle(now)


def _links(made: World, chance: Random) -> list[DemoLink]:
    """Return one link, or in every fourth case two to the same site if there are."""
    first = chance.choice([link for link in made.links if not link.story])
    others = [link for link in made.links if link.sink == first.sink and link.source is not first.source]
    return [first, chance.choice(others)] if others and chance.random() < 0.25 else [first]


def _shares(links: list[DemoLink], rate: float) -> dict[str, float]:
    total = sum(link.rate for link in links)
    return {link.source.source: rate * link.rate / total for link in links}


def _request(
    task: str | None, owner: str, size: int, links: list[DemoLink], now: float, seconds: float, chance: Random
) -> NewGuarantee:
    """Return a refused request, at a lower probability than wanted."""
    sure = chance.choice(WANTED)
    return NewGuarantee(
        owner=owner,
        request_id=None,
        task_id=task,
        bytes=size,
        sink=links[0].sink,
        server="",
        made_at=now,
        deadline=now + seconds,
        sure=sure,
        chance=sure * chance.uniform(0.1, 0.95),
        t50=None,
        t95=None,
        expires_at=None,
        outcome="refused",
    )


def _promised(new: NewGuarantee, chance: Random) -> NewGuarantee:
    """Return the request as a promise."""
    seconds = new.deadline - new.made_at
    probability = chance.uniform(new.sure, min(1.0, new.sure + 0.5 * (1 - new.sure)))
    t50 = new.made_at + seconds * chance.uniform(0.55, 0.75)
    return new._replace(
        chance=probability,
        t50=t50,
        t95=min(new.deadline, new.made_at + (t50 - new.made_at) * chance.uniform(1.2, 1.7))
        if probability >= 0.95
        else new.made_at + (t50 - new.made_at) * chance.uniform(1.2, 1.7),
        outcome=None,
        expires_at=None if new.task_id else new.deadline,
    )
