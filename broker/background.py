"""Background work of the broker, built from the factory's services: the task worker, and periodic jobs."""

from broker.factory import Factory
from broker.jobs.following import ObservationFollower, Rolling
from broker.jobs.probing import Prober
from broker.jobs.scoring import Scoring
from broker.jobs.task_deadlines import DeadlineLooks
from broker.jobs.weekly_report import Poster
from broker.worker.copy_routes import DepotRegistry
from broker.worker.executor import Executor
from broker.worker.wake_ups import WakeUps
from broker.worker.worker import Worker
from coalloc.api import data_routes

__all__ = ["WakeUps", "deadline_looks_of", "followers_of", "poster_of", "prober_of", "worker_of"]


def worker_of(factory: Factory) -> Worker:
    """Return a task worker for this process and its site; each task submitted to this process wakes it."""
    settings, registered = factory.settings, DepotRegistry(factory.depots)
    via = data_routes(settings.via, registry=registered.complete) if settings.via else None
    executor = Executor(
        factory.database,
        factory.trees,
        factory.places,
        factory.replicas,
        factory.catalogue,
        factory.bad_replica_reports,
        factory.unpromised,
        settings.copy_unverified,
        via,
    )
    worker = Worker(factory.database, factory.transfers, factory.decisions, executor, settings.site)
    factory.new_work.subscribe(lambda site: worker.wake())
    return worker


def deadline_looks_of(factory: Factory) -> DeadlineLooks:
    """Return the looks at deadlines that owners of tasks have chosen."""
    return DeadlineLooks(factory.database, factory.task_deadlines, factory.guarantees)


def prober_of(factory: Factory) -> Prober | None:
    """Return the prober that measures links between endpoints; None if the settings have no `probing`."""
    probing = factory.settings.probing
    return probing and Prober(factory.database, factory.places, factory.transfers, probing)


def poster_of(factory: Factory) -> Poster | None:
    """Return the poster of weekly reports; None if the settings have no `posting`."""
    posting = factory.settings.posting
    return posting and Poster(factory.database, factory.archive, posting, factory.drawing)


def followers_of(factory: Factory) -> list[ObservationFollower]:
    """Return the followers that keep traffic sums and forecast scores current; transfers reported here wake them."""
    scoring = Scoring(factory.database, factory.forecasting.compiled)
    followers = [
        ObservationFollower("traffic", Rolling(factory.database).step),
        ObservationFollower("forecasts", scoring.step, rest=0.0),
    ]
    for follower in followers:
        factory.new_transfers.subscribe(follower.news)
    return followers
