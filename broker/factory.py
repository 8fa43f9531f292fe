"""Composition root: all services of one broker, wired once."""

from collections.abc import Callable
from typing import Generic, NamedTuple, ParamSpec, Self

from broker.config.settings import Settings
from broker.reports.archive import Archive
from broker.services.auth.clients import Clients
from broker.services.auth.grants import Grants
from broker.services.auth.identities import Identities
from broker.services.auth.introspection import Introspection
from broker.services.auth.issuers import Issuers
from broker.services.auth.keys import SigningKeys
from broker.services.auth.logins import BrowserSessions, Logins
from broker.services.auth.provider import Provider
from broker.services.auth.quotas import Quotas
from broker.services.auth.tokens import AccessTokens
from broker.services.catalogue.bad_replica_reports import BadReplicaReports
from broker.services.catalogue.bulk import Bulk
from broker.services.catalogue.confirmation import Confirming
from broker.services.catalogue.datasets import Catalogue
from broker.services.catalogue.replicas import Replicas
from broker.services.collections.bookmarks import Bookmarks
from broker.services.collections.collections import Collections
from broker.services.collections.pause_rules import PauseRules
from broker.services.collections.trees import Trees
from broker.services.forecasting.decisions import Decisions
from broker.services.forecasting.forecasts import Forecasting
from broker.services.forecasting.history import Transfers
from broker.services.forecasting.logs import Logs
from broker.services.forecasting.monitoring import Monitoring
from broker.services.network.depots import Depots
from broker.services.network.legs import DepotLegs
from broker.services.network.places import Places
from broker.services.network.probes import Probes
from broker.services.network.routes import MeasuredRoutes
from broker.services.planning.flows import Flows
from broker.services.planning.guarantees import Guarantees
from broker.services.planning.plans import Plans
from broker.services.planning.task_deadlines import TaskDeadlines
from broker.services.planning.unpromised_rates import UnpromisedRates
from broker.services.tasks.notices import Notices
from broker.services.tasks.submissions import Submissions
from broker.services.tasks.tasks import Tasks
from broker.services.tasks.timer_runs import TimerRuns
from broker.services.tasks.timers import Timers
from broker.services.tasks.watching import Pace, Watching
from broker.storage.database import Database, addressed
from broker.subprocesses import Budget, SeparateProcess, Turns

__all__ = ["Announcements", "Factory"]

MB = 1 << 20
WORKING = Budget(250 * MB, 20, 60, 2)
"""Budget of the subprocess that computes plans, and reads and writes other programs' files."""
DRAWING = Budget(250 * MB, 20, 60, 20, reserved=600 * MB)
"""Budget of the subprocess that draws figures; the drawing engine reserves address space that it never uses."""
EACH, WAITING = 30.0, 8
"""Limits for the large requests of one user: recent processing time in seconds, and number that may wait."""
P = ParamSpec("P")


class Announcements(Generic[P]):
    """An event with subscribers: a call of the object calls all of them."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, None]] = []

    def subscribe(self, subscriber: Callable[P, None]) -> None:
        """Call `subscriber` at each later announcement; it must not block."""
        self._subscribers.append(subscriber)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)


class Factory(NamedTuple):
    """The services of one broker, over one database."""

    settings: Settings
    database: Database
    tokens: AccessTokens
    identities: Identities
    clients: Clients
    grants: Grants
    logins: Logins
    sessions: BrowserSessions
    keys: SigningKeys
    provider: Provider | None
    places: Places
    depots: Depots
    depot_legs: DepotLegs
    routes: MeasuredRoutes
    catalogue: Catalogue
    confirming: Confirming
    bad_replica_reports: BadReplicaReports
    bulk: Bulk
    forecasting: Forecasting
    transfers: Transfers
    logs: Logs
    decisions: Decisions
    replicas: Replicas
    plans: Plans
    flows: Flows
    guarantees: Guarantees
    unpromised: UnpromisedRates
    collections: Collections
    bookmarks: Bookmarks
    pause_rules: PauseRules
    tasks: Tasks
    submissions: Submissions
    timers: Timers
    timer_runs: TimerRuns
    watching: Watching
    notices: Notices | None
    trees: Trees
    task_deadlines: TaskDeadlines
    probes: Probes
    archive: Archive
    monitoring: Monitoring
    working: SeparateProcess
    drawing: SeparateProcess
    large: Turns
    new_work: Announcements[[str]]
    new_transfers: Announcements[[]]

    @classmethod
    def of(cls, settings: Settings, compiled: bool | None = None) -> Self:
        """Create all services that the settings need, without opening a connection.

        :param compiled: whether to compile forecasters; by default if numba is installed
        """
        database = Database(addressed(settings.database))
        places, quotas = Places(database, settings.network), Quotas(settings.added_per_hour)
        working, drawing, large = SeparateProcess(WORKING), SeparateProcess(DRAWING), Turns(EACH, WAITING)
        catalogue = Catalogue(database, places)
        forecasting = Forecasting(database, places, compiled)
        new_work, new_transfers = Announcements[[str]](), Announcements[[]]()
        new_transfers.subscribe(forecasting.news)
        transfers = Transfers(database, places, quotas, new_transfers)
        replicas = Replicas(database, places, forecasting, settings)
        guarantees = Guarantees(database, places, forecasting, replicas, quotas)
        services = (
            settings,
            database,
            *_auth(settings, database),
            places,
            Depots(database, places),
            DepotLegs(database, places, quotas),
            MeasuredRoutes(database, quotas),
            catalogue,
            Confirming(database),
            BadReplicaReports(database, places, forecasting),
            Bulk(catalogue, places, working, large, quotas),
            forecasting,
            transfers,
            Logs(transfers, working, large),
            Decisions(database, places),
            replicas,
            Plans(replicas),
            Flows(places, forecasting, working),
            guarantees,
            UnpromisedRates(database, guarantees),
            *_tasks(settings, database, places, guarantees, new_work),
            Probes(database, places, settings.probing),
            Archive(settings, database, places, forecasting, Pace()),
            Monitoring(database),
            working,
            drawing,
            large,
            new_work,
            new_transfers,
        )
        return cls(*services)


def _auth(
    settings: Settings, database: Database
) -> tuple[AccessTokens, Identities, Clients, Grants, Logins, BrowserSessions, SigningKeys, Provider | None]:
    """Create the services that know who asks, in the order of the factory's fields."""
    issuers, keys = Issuers(settings.issuers, settings.network), SigningKeys(database)
    introspection = Introspection(settings.introspection) if settings.introspection else None
    tokens = AccessTokens(database, issuers, introspection)
    return (
        tokens,
        Identities(database, settings.usernames),
        Clients(database, tokens),
        Grants(database, tokens),
        Logins(database, tokens),
        BrowserSessions(database),
        keys,
        Provider(settings.provider, issuers, keys, settings.network) if settings.provider else None,
    )


def _tasks(
    settings: Settings, database: Database, places: Places, guarantees: Guarantees, new_work: Announcements[[str]]
) -> tuple[
    Collections,
    Bookmarks,
    PauseRules,
    Tasks,
    Submissions,
    Timers,
    TimerRuns,
    Watching,
    Notices | None,
    Trees,
    TaskDeadlines,
]:
    """Create the services of tasks and their collections, in the order of the factory's fields."""
    collections, tasks = Collections(database), Tasks(database, new_work)
    pause_rules, trees = PauseRules(database, new_work), Trees(database, places, settings)
    task_deadlines = TaskDeadlines(database, places, guarantees, collections, pause_rules, trees)
    submissions = Submissions(collections, tasks, task_deadlines)
    return (
        collections,
        Bookmarks(database),
        pause_rules,
        tasks,
        submissions,
        Timers(database, submissions),
        TimerRuns(database, submissions, tasks),
        Watching(database),
        Notices(database, settings.hook) if settings.hook else None,
        trees,
        task_deadlines,
    )
