"""The public API and composition root: download, plan, probe. Wires resolve, engines, scheduler, sink and journal."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coalloc.model import Plan, Snapshot, TransferReport

__all__ = ["Engine", "Request", "Strategy", "download", "plan"]

Strategy = Literal["single", "brute", "history", "conservative", "aggressive", "adaptive"]
Engine = Literal["auto", "gridftp", "globus-url-copy"]


@dataclass(frozen=True, slots=True)
class Request:
    """What the user wants fetched, and how.

    `sources` are replica URLs of one file, or one Metalink file or URL. `output` is a file or an existing
    directory; None means the current directory and the file's own name. `checksum` is "ALGORITHM:HEX",
    "none" to keep no checksums at all, or None for the default (adler32 kept, replicas compared).
    """

    sources: tuple[str, ...]
    output: Path | None = None
    strategy: Strategy = "adaptive"
    blocks: int | None = None
    streams: int = 1
    max_sources: int | None = None
    engine: Engine = "auto"
    checksum: str | None = None
    data_hosts: frozenset[str] = frozenset()


async def download(request: Request, watch: Callable[[Snapshot], None] | None = None) -> list[TransferReport]:
    """Fetch every file that the request names; `watch` is shown snapshots as the transfer goes.

    Raises a CoallocError. Cancelling stops cleanly and leaves a state that the next call resumes.
    """
    raise NotImplementedError


async def plan(request: Request) -> list[Plan]:
    """Say how each file would be fetched. Asks the servers for sizes, moves nothing."""
    raise NotImplementedError
