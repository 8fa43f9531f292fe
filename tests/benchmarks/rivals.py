"""The rivals: programs to compare, with the servers that each uses and the command line that fetches the file.

Names are permanent. In a round, each rival gets the same replicas in the same order; a rival that can use only one
server gets the fastest. Settings are the programs' defaults, unless the name says otherwise. `tests.benchmarks.race`
runs them.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.resolve import metalink

__all__ = ["PEERS", "RIVALS", "Errand", "Rival"]

Servers = Literal["own", "ftp", "http", "root"]
"""Protocol of a rival's servers; `own` stands for the protocols that the scenario uses for coget."""

COGET = str(Path(sys.executable).with_name("coget"))


@dataclass(frozen=True, slots=True)
class Errand:
    """A file to fetch: `size` bytes from `urls` (`best` is the URL of the fastest source) to `target`."""

    urls: Sequence[str]
    best: str
    size: int
    target: Path

    @property
    def metalink(self) -> Path:
        """Return the path for a Metalink with the URLs."""
        return self.target.with_suffix(".meta4")

    def write_metalink(self) -> None:
        replicas = tuple(Replica(url, priority=1) for url in self.urls)
        published = datetime.fromtimestamp(0, UTC)
        self.metalink.write_text(metalink.write([ReplicaSet(self.target.name, replicas, self.size)], published))


@dataclass(frozen=True, slots=True)
class Rival:
    """A program and its settings."""

    name: str
    program: str
    servers: Servers
    command: Callable[[Errand], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)


def _coget(urls: Callable[[Errand], Sequence[str]]) -> Callable[[Errand], list[str]]:
    return lambda errand: [COGET, "get", "--json", "--quiet", "-o", str(errand.target), *urls(errand)]


def _aria2(errand: Errand) -> list[str]:
    target = ["--dir", str(errand.target.parent), "--out", errand.target.name]
    return ["aria2c", "--no-conf", "--quiet", *target, *errand.urls]


def _aria2_tuned(errand: Errand) -> list[str]:
    return [*_aria2(errand), f"-s{max(4, len(errand.urls))}", "-x1", "-k1M"]


def _globus_url_copy(*settings: str) -> Callable[[Errand], list[str]]:
    return lambda errand: ["globus-url-copy", *settings, errand.best, errand.target.as_uri()]


def _axel(errand: Errand) -> list[str]:
    return [
        "axel",
        "--quiet",
        f"--num-connections={max(4, len(errand.urls))}",
        f"--output={errand.target}",
        *errand.urls,
    ]


def _lftp(errand: Errand) -> list[str]:
    return ["lftp", "--norc", "-c", f"pget -c -n 4 {errand.best} -o {errand.target}"]


def _xrdcp(errand: Errand) -> list[str]:
    errand.write_metalink()
    return [
        "xrdcp",
        "--silent",
        "--force",
        "--sources",
        str(len(errand.urls)),
        str(errand.metalink),
        str(errand.target),
    ]


RIVALS = {
    rival.name: rival
    for rival in (
        Rival("coget", COGET, "own", _coget(lambda errand: errand.urls)),
        Rival("coget-http", COGET, "http", _coget(lambda errand: errand.urls)),
        Rival("coget-best", COGET, "own", _coget(lambda errand: [errand.best])),
        Rival("aria2", "aria2c", "http", _aria2),
        Rival("aria2-tuned", "aria2c", "http", _aria2_tuned),
        Rival("globus-url-copy", "globus-url-copy", "ftp", _globus_url_copy()),
        Rival("globus-url-copy-p8", "globus-url-copy", "ftp", _globus_url_copy("-p", "8")),
        Rival("axel", "axel", "http", _axel),
        Rival("lftp", "lftp", "http", _lftp),
        Rival("xrdcp", "xrdcp", "root", _xrdcp),
        Rival(
            "xrdcp-tuned", "xrdcp", "root", _xrdcp, {"XRD_XCPBLOCKSIZE": str(8 << 20), "XRD_CPCHUNKSIZE": str(1 << 20)}
        ),
    )
}

PEERS = [name for name in RIVALS if name not in ("coget-best", "globus-url-copy-p8")]
"""Names of the rivals that take part in every scenario."""
