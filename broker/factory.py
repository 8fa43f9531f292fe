"""Composition root: all services of one broker, wired once."""

from typing import NamedTuple, Self

from broker.apart import Apart, Budget, Turns
from broker.config import Settings
from broker.reports.archive import Archive
from broker.services.access import Access
from broker.services.bookmarks import Bookmarks
from broker.services.bulk import Bulk
from broker.services.catalogue import Catalogue
from broker.services.clients import Clients
from broker.services.collections import Collections
from broker.services.confirming import Confirming
from broker.services.decisions import Decisions
from broker.services.doubts import Doubts
from broker.services.flows import Flows
from broker.services.forecasting import Forecasting
from broker.services.grants import Grants
from broker.services.history import Transfers
from broker.services.identities import Identities
from broker.services.introspection import Introspection
from broker.services.issuers import Issuers
from broker.services.keys import Keys
from broker.services.logins import Logins
from broker.services.logs import Logs
from broker.services.monitoring import Monitoring
from broker.services.notices import Notices
from broker.services.pace import Pace
from broker.services.pauses import Pauses
from broker.services.places import Places
from broker.services.plans import Plans
from broker.services.probes import Probes
from broker.services.provider import Provider
from broker.services.quotas import Quotas
from broker.services.replicas import Replicas
from broker.services.sessions import Sessions
from broker.services.submissions import Submissions
from broker.services.tasks import Tasks
from broker.services.trees import Trees
from broker.services.watching import Watching
from broker.storage.database import Database, addressed

__all__ = ["Factory"]

MB = 1 << 20
WORKING = Budget(250 * MB, 20, 60, 2)
"""For plans, and for files of other programs that are read or written."""
DRAWING = Budget(250 * MB, 20, 60, 20, reserved=600 * MB)
"""For figures: the drawing engine reserves that much for code that it never generates."""
EACH, WAITING = 30.0, 8
"""Seconds of large requests that one user may use within minutes, and how many of theirs may wait."""


class Factory(NamedTuple):
    """The services of one broker, over one database."""

    settings: Settings
    database: Database
    access: Access
    identities: Identities
    clients: Clients
    grants: Grants
    logins: Logins
    sessions: Sessions
    keys: Keys
    provider: Provider | None
    places: Places
    catalogue: Catalogue
    confirming: Confirming
    doubts: Doubts
    bulk: Bulk
    forecasting: Forecasting
    transfers: Transfers
    logs: Logs
    decisions: Decisions
    replicas: Replicas
    plans: Plans
    flows: Flows
    collections: Collections
    bookmarks: Bookmarks
    pauses: Pauses
    tasks: Tasks
    submissions: Submissions
    watching: Watching
    notices: Notices | None
    trees: Trees
    probes: Probes
    archive: Archive
    monitoring: Monitoring
    working: Apart
    drawing: Apart
    large: Turns

    @classmethod
    def of(cls, settings: Settings, compiled: bool | None = None) -> Self:
        """Return all services that these settings ask for; opens no connection yet.

        :param compiled: whether forecasters are compiled; by default if numba is installed
        """
        database, issuers = Database(addressed(settings.database)), Issuers(settings.issuers, settings.network)
        introspection = Introspection(settings.introspection) if settings.introspection else None
        access, keys = Access(database, issuers, introspection), Keys(database)
        places = Places(database, settings.network)
        working, drawing, large = Apart(WORKING), Apart(DRAWING), Turns(EACH, WAITING)
        quotas = Quotas(settings.added_per_hour)
        catalogue = Catalogue(database, places)
        forecasting = Forecasting(database, places, compiled)
        transfers = Transfers(database, places, forecasting, quotas)
        replicas = Replicas(database, places, forecasting, settings)
        collections, tasks = Collections(database), Tasks(database)
        return cls(
            settings,
            database,
            access,
            Identities(database, settings.usernames),
            Clients(database, access),
            Grants(database, access),
            Logins(database, access),
            Sessions(database),
            keys,
            Provider(settings.provider, issuers, keys, settings.network) if settings.provider else None,
            places,
            catalogue,
            Confirming(database),
            Doubts(database, places, forecasting),
            Bulk(catalogue, places, working, large, quotas),
            forecasting,
            transfers,
            Logs(transfers, working, large),
            Decisions(database, places),
            replicas,
            Plans(replicas),
            Flows(places, forecasting, working),
            collections,
            Bookmarks(database),
            Pauses(database),
            tasks,
            Submissions(collections, tasks),
            Watching(database),
            Notices(database, settings.hook) if settings.hook else None,
            Trees(database, places, settings),
            Probes(database, places, settings.probing),
            Archive(settings, database, places, forecasting, Pace()),
            Monitoring(database),
            working,
            drawing,
            large,
        )
