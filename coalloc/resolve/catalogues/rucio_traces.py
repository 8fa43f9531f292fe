"""Traces of downloads for a Rucio server, as from Rucio's own client, to count the popularity of files.

They carry no login, and no text of an error, which may have local paths and the addresses of other servers. A server
that does not answer is no error. `rucio` makes their targets.
"""

import asyncio
import json
import os
import socket
import uuid
from collections.abc import Sequence
from contextlib import suppress

from coalloc.errors import CoallocError, VerificationError
from coalloc.model.replicas import ReplicaSet
from coalloc.model.reports import TransferReport
from coalloc.resolve.http_documents import send
from coalloc.util.dialer import Dialer

__all__ = ["RucioTraces"]

SECONDS, SECONDS_IN_ALL = 2.0, 10.0
"""Time limits for a request, and for all requests of a call; after one that fails, no other is sent."""
AT_ONCE = 500
"""Number of traces in a request."""
SITES = ("SITE_NAME", "ATLAS_SITE_NAME", "OSG_SITE_NAME")
"""Variables with the name of this site, as Rucio's client reads them."""


class RucioTraces:
    """The traces of one call, which are sent together at its end."""

    def __init__(self) -> None:
        self._number = uuid.uuid4().hex
        self._waiting: dict[str, list[dict[str, object]]] = {}

    def add(self, file: ReplicaSet, report: TransferReport, began: float, error: CoallocError | None) -> None:
        """Add the trace of a file, if its catalogue counts downloads.

        :param began: when the transfer began, in seconds since 1970
        """
        if file.trace is None:
            return
        best = max(report.sources, key=lambda each: each.bytes, default=None)
        place = next((each.location for each in file.replicas if best and each.url == best.url), None)
        state = "FAIL_VALIDATE" if isinstance(error, VerificationError) else "FAILED"
        trace = {
            "eventType": "download",
            "eventVersion": "coget",
            "hostname": socket.gethostname(),
            "localSite": next((os.environ[name] for name in SITES if os.environ.get(name)), "ROAMING"),
            "uuid": self._number,
            "datasetScope": "",
            "dataset": "",
            **dict(file.trace.fields),
            "filesize": report.size,
            "clientState": state if error else "ALREADY_DONE" if report.there else "DONE",
            "stateReason": error.code if error else "OK",
            "transferStart": began,
            "transferEnd": began + report.seconds,
        }
        if best:
            trace["protocol"] = best.url.partition(":")[0]
        if place:
            trace["remoteSite"] = place.upper()  # names of Rucio's storage elements, which Metalinks have in lower case
        self._waiting.setdefault(file.trace.url, []).append(trace)

    async def flush(self, dialers: Sequence[Dialer]) -> None:
        """Send what was added."""
        waiting, self._waiting = self._waiting, {}
        with suppress(CoallocError, TimeoutError):
            async with asyncio.timeout(SECONDS_IN_ALL):
                for url, traces in waiting.items():
                    for at in range(0, len(traces), AT_ONCE):
                        async with asyncio.timeout(SECONDS):
                            await send(url, json.dumps(traces[at : at + AT_ONCE]).encode(), dialers)
