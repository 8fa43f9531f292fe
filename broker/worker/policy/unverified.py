"""The treatment of files that cannot be verified: they fail, or are copied and marked, as configured; pure."""

from typing import NamedTuple

from broker.models.tasks import Event, Options, Work
from broker.models.work import WorkResult
from coalloc.errors import VerificationError

__all__ = ["Unverifiable", "VerificationDemand"]


class Unverifiable(VerificationError):
    """A file whose copy cannot be compared with the original."""


class VerificationDemand(NamedTuple):
    """The verification that a task requires.

    :param ends: names of the two collections
    :param lenient: whether files that cannot be verified are copied anyway
    """

    options: Options
    ends: tuple[str, str]
    lenient: bool = False

    def of(self, work: Work) -> bool:
        """Return whether a file must be verified; a checksum given by its owner always requires it."""
        return self.options.verify_checksum or work.details.told is not None

    def check(self, work: Work, verified: bool) -> None:
        """Check that a file was verified if it had to be.

        :raises Unverifiable: when it was not, and may not be copied unverified
        """
        if self.of(work) and not verified and not (self.lenient and work.details.told is None):
            source, sink = self.ends
            raise Unverifiable(
                f"{work.source} cannot be verified: {source} and {sink} have no checksum algorithm in common",
                "submit it with verify_checksum false, or have an admin set copy_unverified = true in [transfers] "
                "of the workers' TOML",
            )

    def marked(self, result: WorkResult, verified: bool, now: float) -> WorkResult:
        """Return the result, marked as unverified if the file should have been verified and was not."""
        if verified or not self.of(result.work):
            return result
        source, sink = self.ends
        details = f"{result.work.source}: {source} and {sink} have no checksum algorithm in common"
        event = Event(now, "UNVERIFIED", False, "copied, but not verified", details)
        counts = {**result.counts, "files_unverified": 1}
        return result._replace(checksum=None, counts=counts, events=(*result.events, event))
