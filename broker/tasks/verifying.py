"""What becomes of a file that cannot be verified: it fails, or is copied and shown as unverified, as the TOML says."""

import time
from typing import NamedTuple

from broker.models.tasks import Event, Options, Work
from broker.storage.work import Result
from coalloc.errors import VerificationError

__all__ = ["Demand", "Unverifiable"]


class Unverifiable(VerificationError):
    """A file of which nobody can say whether it arrived as it was sent."""


class Demand(NamedTuple):
    """What a task demands.

    :param ends: what the collections are called
    :param lenient: whether files that cannot be verified are copied all the same
    """

    options: Options
    ends: tuple[str, str]
    lenient: bool = False

    def of(self, work: Work) -> bool:
        """Whether a file has to be verified; one whose checksum its owner told has to, in any case."""
        return self.options.verify_checksum or work.details.told is not None

    def check(self, work: Work, verified: bool) -> None:
        """:raises Unverifiable: when a file has to be verified, and cannot be"""
        if self.of(work) and not verified and not (self.lenient and work.details.told is None):
            source, sink = self.ends
            raise Unverifiable(
                f"{work.source} cannot be verified: {source} and {sink} have no checksum algorithm in common",
                "submit it with verify_checksum false, or have an admin set copy_unverified = true in [transfers] "
                "of the workers' TOML",
            )

    def marked(self, result: Result, verified: bool) -> Result:
        """Return a result that says so where a file should have been verified, and was not."""
        if verified or not self.of(result.work):
            return result
        source, sink = self.ends
        details = f"{result.work.source}: {source} and {sink} have no checksum algorithm in common"
        event = Event(time.time(), "UNVERIFIED", False, "copied, but not verified", details)
        counts = {**result.counts, "files_unverified": 1}
        return result._replace(checksum=None, counts=counts, events=(*result.events, event))
