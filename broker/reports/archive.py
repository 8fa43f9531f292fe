"""What reports are made from, and for whom."""

from typing import NamedTuple

from broker.config import Settings
from broker.models.access import Caller
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
    """

    subject: str | None

    @classmethod
    def of(cls, caller: Caller) -> "Scope":
        """An admin sees all, others what is theirs."""
        return cls(None if caller.may("admin") else caller.subject)
