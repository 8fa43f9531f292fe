"""Composition root: all services of one broker, wired once."""

from typing import NamedTuple, Self

from broker.config import Settings
from broker.services.access import Access
from broker.services.bulk import Bulk
from broker.services.catalogue import Catalogue
from broker.services.forecasting import Forecasting
from broker.services.history import Reports
from broker.services.issuers import Issuers
from broker.services.logs import Logs
from broker.services.places import Places
from broker.services.plans import Plans
from broker.services.replicas import Replicas
from broker.services.tasks import Tasks
from broker.services.trees import Trees
from broker.storage.database import Database, addressed

__all__ = ["Factory"]


class Factory(NamedTuple):
    """The services, over one database."""

    settings: Settings
    database: Database
    access: Access
    places: Places
    catalogue: Catalogue
    bulk: Bulk
    forecasting: Forecasting
    reports: Reports
    logs: Logs
    replicas: Replicas
    plans: Plans
    tasks: Tasks
    trees: Trees

    @classmethod
    def of(cls, settings: Settings, compiled: bool | None = None) -> Self:
        """All that these settings ask for; opens no connection yet.

        :param compiled: whether forecasters are; by default where numba is there
        """
        database = Database(addressed(settings.database))
        places = Places(database)
        catalogue = Catalogue(database, places)
        forecasting = Forecasting(database, places, compiled)
        reports = Reports(database, places, forecasting)
        replicas = Replicas(database, places, forecasting, settings)
        return cls(
            settings,
            database,
            Access(database, Issuers(settings.issuers)),
            places,
            catalogue,
            Bulk(catalogue, places),
            forecasting,
            reports,
            Logs(reports),
            replicas,
            Plans(replicas),
            Tasks(database),
            Trees(database, places, settings),
        )
