"""Which reports are made, of what time: one that somebody names, or all that have a place in menus."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from broker.errors import Invalid, NotFound
from broker.reports.archive import Archive, Scope
from broker.reports.catalogue import REPORTS, Kind
from broker.reports.document import Report
from broker.reports.words import written

__all__ = ["ALL", "Period", "asked", "made"]

ALL = "all"


class Period(NamedTuple):
    """A time that is reported on; without an end, up to now, without a beginning, as long as each report thinks fit."""

    since: float | None = None
    until: float | None = None

    def __str__(self) -> str:
        """In words, for people; nothing where it has neither beginning nor end."""
        said = [("From", self.since), ("to", self.until)]
        return " ".join(f"{word} {written(moment, 'moment')}" for word, moment in said if moment is not None)


def asked(kind: Kind, said: Mapping[str, str], period: Period) -> BaseModel:
    """What is asked of a report: what was said, and the period, as far as the report has one.

    :raises pydantic.ValidationError: when it makes no sense to the report
    """
    fields = kind.wanted.model_fields
    known = {name: moment for name, moment in period._asdict().items() if moment is not None and name in fields}
    return kind.wanted.model_validate({**known, **said})


async def made(archive: Archive, name: str, said: Mapping[str, str], period: Period) -> Sequence[Report]:
    """The report of this name, or all of menus, as admins see them.

    :param said: what is asked of it, by the names of its parameters
    :raises NotFound: when there is none of this name
    :raises Invalid: when it is of no period, but one was given
    """
    if name == ALL:
        kinds = [kind for kind in REPORTS.values() if kind.listed]
    elif name in REPORTS:
        kinds = [REPORTS[name]]
        if any(period) and not {"since", "until"} & kinds[0].wanted.model_fields.keys():
            raise Invalid(f"the report {name} is of no period", "leave out --since, --until and --days")
    else:
        raise NotFound(f"there is no report {name}", f"name one of {', '.join(REPORTS)}, or all")
    return [await kind.make(archive, Scope(None), asked(kind, said, period)) for kind in kinds]
