"""The writer of the demonstration's data to a database, through the services that store real data.

It uses the storage layer directly where a service would record the current time.
"""

from collections.abc import Sequence
from itertools import groupby
from random import Random
from uuid import UUID

from broker.demo.decisions import decided, downloads
from broker.demo.finished_tasks import Copied, carry_out, enrol, tune
from broker.demo.made_up_tasks import errands, tunings
from broker.demo.places import note, place
from broker.demo.promises import promise
from broker.demo.routes import relay
from broker.demo.traffic import DemoTransfer, transfers
from broker.demo.world import DAY, World, world
from broker.factory import Factory
from broker.jobs.following import Rolling
from broker.models.decisions import Made

__all__ = ["count", "fill"]


async def fill(factory: Factory, seed: int, end: float) -> None:
    """Fill an empty database with the demonstration of a seed, whose history ends at `end` (seconds since 1970)."""
    made, database = world(seed), factory.database
    notes = await place(database, made, end)
    notes += await relay(database, made, seed, end)
    await _report(factory, made, seed, end)
    keys = Random(f"keys {seed}")
    await enrol(database)
    copied: list[Copied] = []
    for errand in errands(made, seed):
        carried = await carry_out(database, errand, UUID(int=keys.getrandbits(128), version=4), end)
        notes += carried.notes
        copied += carried.copied
    await _decide(factory, made, copied, seed, end)
    await tune(database, tunings(seed), end)
    await promise(database, made, seed, end)
    await note(database, notes)
    await count(factory)


async def _decide(factory: Factory, made: World, copied: Sequence[Copied], seed: int, end: float) -> None:
    """Record the decisions of tasks and of users' own downloads, the oldest first."""
    alone = ((each, None, None) for each in downloads(made, seed))
    for i, (download, task, work) in enumerate(sorted([*alone, *copied], key=lambda each: -each[0].age)):
        if choice := decided(made, download, f"demo.{i}", seed, end):
            await factory.decisions.keep(download.subject, [Made(choice, task, work)])


async def count(factory: Factory) -> None:
    """Compute the traffic sums of all transfers, as a running broker does in the background."""
    while await Rolling(factory.database).step():
        pass


async def _report(factory: Factory, made: World, seed: int, end: float) -> None:
    """Report the transfers by day and user, so that each link's transfers are stored in the order of their ends."""

    def day_and_subject(each: DemoTransfer) -> tuple[int, str]:
        return int((each.observed.started - end) // DAY), each.subject

    for (_, subject), some in groupby(sorted(transfers(made, seed, end), key=day_and_subject), day_and_subject):
        await factory.transfers.take(subject, [each.observed for each in some])
