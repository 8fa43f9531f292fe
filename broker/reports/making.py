"""Makes reports for a period: one by name, or all that menus list."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from broker.errors import Invalid, NotFound
from broker.reports.archive import Archive, Scope
from broker.reports.catalogue import REPORTS, ReportKind
from broker.reports.document import Report
from broker.reports.words import written

__all__ = ["ALL", "Period", "asked", "made"]

ALL = "all"
DAY = 86_400.0


class Period(NamedTuple):
    """The period of a report; by default it ends now, and each report chooses its beginning.

    :param since: seconds since the epoch
    :param until: seconds since the epoch
    """

    since: float | None = None
    until: float | None = None

    def __str__(self) -> str:
        """Return the period as text for readers; empty if it has neither beginning nor end."""
        said = [("From", self.since), ("to", self.until)]
        return " ".join(f"{word} {written(moment, 'moment')}" for word, moment in said if moment is not None)


def asked(kind: ReportKind, said: Mapping[str, str], period: Period, now: float) -> BaseModel:
    """Return the parameters of a report: those given, and the period, which some reports take as days up to now.

    :raises pydantic.ValidationError: when the report does not accept them
    """
    known: dict[str, float | str] = {name: at for name, at in period._asdict().items() if at is not None}
    if period.since is not None:
        known["days"] = max(1, round((now - period.since) / DAY))
    fields = kind.wanted.model_fields
    return kind.wanted.model_validate({**{name: known[name] for name in known.keys() & fields.keys()}, **said})


async def made(archive: Archive, name: str, said: Mapping[str, str], period: Period, now: float) -> Sequence[Report]:
    """Return the report of this name, or all that menus list, as admins see them.

    :param said: parameters of the report, by name
    :param now: seconds since the epoch
    :raises NotFound: when there is no report of this name
    :raises Invalid: when a period was given for a report without one, or an end for a report that always ends now
    """
    if name != ALL and name not in REPORTS:
        raise NotFound(f"there is no report {name}", f"name one of {', '.join(REPORTS)}, or all")
    kinds = [kind for kind in REPORTS.values() if kind.listed] if name == ALL else [REPORTS[name]]
    if period.until is not None and (endless := _without(kinds, "until")):
        raise Invalid(f"{', '.join(endless)} can only end now", "leave out --until")
    if period.since is not None and name in _without(kinds, "since", "days"):
        raise Invalid(f"the report {name} is of no period", "leave out --since and --days")
    return [await kind.make(archive, Scope(None), asked(kind, said, period, now)) for kind in kinds]


def _without(kinds: Iterable[ReportKind], *fields: str) -> list[str]:
    return [kind.name for kind in kinds if not kind.wanted.model_fields.keys() & set(fields)]
