"""Carries tasks out: workers lease work, do it over kept sessions, and record what came of it."""

from broker.factory import Factory
from broker.tasks.carrier import Carrier
from broker.tasks.following import Follower
from broker.tasks.posting import Poster
from broker.tasks.prober import Prober
from broker.tasks.queue import Queue
from broker.tasks.rolling import Rolling
from broker.tasks.scoring import Scoring
from broker.tasks.worker import Worker

__all__ = ["Queue", "followers_of", "poster_of", "prober_of", "worker_of"]


def worker_of(factory: Factory) -> Worker:
    """A worker of this process, for its site; it is told of tasks that are submitted here."""
    carrier = Carrier(
        factory.database, factory.trees, factory.places, factory.replicas, factory.settings.copy_unverified
    )
    worker = Worker(factory.database, factory.transfers, factory.decisions, carrier, factory.settings.site)
    factory.tasks.wake = lambda site: worker.wake()
    return worker


def prober_of(factory: Factory) -> Prober | None:
    """What measures ways between endpoints, where the settings want it."""
    probing = factory.settings.probing
    return probing and Prober(factory.database, factory.places, factory.transfers, probing)


def poster_of(factory: Factory) -> Poster | None:
    """What posts each week's report, where the settings want it."""
    posting = factory.settings.posting
    return posting and Poster(factory.database, factory.archive, posting, factory.drawing)


def followers_of(factory: Factory) -> list[Follower]:
    """What reports are made from, kept up with what is reported; they are told of what is reported here."""
    scoring = Scoring(factory.database, factory.forecasting.compiled)
    followers = [Follower("traffic", Rolling(factory.database).step), Follower("forecasts", scoring.step, rest=0.0)]
    factory.transfers.listeners += [each.news for each in followers]
    return followers
