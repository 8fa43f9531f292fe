"""The fact that a page's scores are behind the reported transfers, and how far."""

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.reports.document import Fact
from broker.storage.accuracy import COUNTED, Accuracy

__all__ = ["unscored"]


async def unscored(connection: AsyncConnection, subject: str | None, pair_id: int | None = None) -> list[Fact]:
    """Return the number of transfers that the page will count later; nothing if it counts all.

    :param subject: subject whose transfers the page shows; None for all
    :param pair_id: link that the page shows; None for all
    """
    transfers, links = await Accuracy(connection).unscored(subject, pair_id)
    if not transfers:
        return []
    note = "reported, but not yet compared with forecasts: this page does not count them"
    more = "at least; " if transfers == COUNTED else ""
    of = "" if pair_id is not None else f"over {links:,} link{'s' if links > 1 else ''}, "
    return [Fact("Not scored yet", transfers, "count", f"{more}{of}{note}")]
