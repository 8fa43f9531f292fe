"""The data sources of reports, and the part of the data that a user may see."""

from typing import NamedTuple

from broker.config.settings import Settings
from broker.models.callers import Caller, Role
from broker.services.forecasting.forecasts import Forecasting
from broker.services.network.places import Places
from broker.services.tasks.watching import Pace
from broker.storage.database import Database

__all__ = ["Archive", "Scope"]


class Archive(NamedTuple):
    """The database, and the services whose results appear in reports."""

    settings: Settings
    database: Database
    places: Places
    forecasting: Forecasting
    pace: Pace


class Scope(NamedTuple):
    """The data that a report may show.

    :param subject: owner of the data; None for the data of all users
    :param role: role of the user who reads the report
    """

    subject: str | None
    role: Role = "reader"

    @classmethod
    def of(cls, caller: Caller) -> "Scope":
        """Return the scope of a caller: all data for admins, their own data for other users."""
        return cls(caller.scope, caller.role)

    @property
    def caller(self) -> Caller:
        """The user who reads the report."""
        role: Role = "admin" if self.subject is None else self.role
        return Caller.model_construct(subject=self.subject or "", role=role, site="")
