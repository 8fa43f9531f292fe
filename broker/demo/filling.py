"""Makes the demonstration: by the services that take in real data, or by what these write with, where a service would
say that it happened now.
"""

from itertools import groupby
from random import Random
from uuid import UUID

from broker.demo.carrying import carry_out, enrol, tune
from broker.demo.errands import errands, tunings
from broker.demo.placing import note, place
from broker.demo.traffic import Transfer, transfers
from broker.demo.world import DAY, World, world
from broker.factory import Factory
from broker.tasks import followers_of

__all__ = ["fill", "follow"]


async def fill(factory: Factory, seed: int, end: float) -> None:
    """Fill an empty database with the demonstration of a seed, which ends at this moment."""
    made, database = world(seed), factory.database
    said = await place(database, made, end)
    await _report(factory, made, seed, end)
    keys = Random(f"keys {seed}")
    await enrol(database, end)
    for errand in errands(made, seed):
        said += await carry_out(database, errand, UUID(int=keys.getrandbits(128), version=4), end)
    await tune(database, tunings(seed), end)
    await note(database, said)
    await follow(factory)


async def follow(factory: Factory) -> None:
    """Make of what was reported all that reports are made from; a broker does so, too, but later."""
    for follower in followers_of(factory):
        await follower.catch_up()


async def _report(factory: Factory, made: World, seed: int, end: float) -> None:
    """Day by day, person by person: so transfers of a way are numbered in the order in which they ended."""

    def whose(each: Transfer) -> tuple[int, str]:
        return int((each.observed.started - end) // DAY), each.subject

    for (_, subject), some in groupby(sorted(transfers(made, seed, end), key=whose), whose):
        await factory.transfers.take(subject, [each.observed for each in some])
