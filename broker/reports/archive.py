"""What reports are made from, and for whom."""

from typing import NamedTuple

from broker.config import Settings
from broker.models.access import Caller, Role
from broker.services.forecasting import Forecasting
from broker.services.pace import Pace
from broker.services.places import Places
from broker.storage.database import Database

__all__ = ["Archive", "Scope"]


class Archive(NamedTuple):
    """The database, and the services whose word reports repeat."""

    settings: Settings
    database: Database
    places: Places
    forecasting: Forecasting
    pace: Pace


class Scope(NamedTuple):
    """Whose doings are shown.

    :param subject: whose; None is everybody's
    :param role: of who looks
    """

    subject: str | None
    role: Role = "reader"

    @classmethod
    def of(cls, caller: Caller) -> "Scope":
        """An admin sees all, others what is theirs."""
        return cls(caller.scope, caller.role)

    @property
    def caller(self) -> Caller:
        """Who looks."""
        role: Role = "admin" if self.subject is None else self.role
        return Caller.model_construct(subject=self.subject or "", role=role, site="")
