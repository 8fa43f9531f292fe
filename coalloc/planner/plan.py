"""What planners answer: who sends how much to whom, how long that takes, and why it cannot be faster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from coalloc.planner.network import LinkKey

__all__ = ["Certificate", "Limit", "Path", "TransferPlan"]


class Path(NamedTuple):
    """Bytes of a file that go the same way: from a holder, over relays, to a destination.

    One host alone: the file is wanted where it is held, and nothing has to be sent.
    """

    file: str
    hosts: tuple[str, ...]
    bytes: int


class Limit(NamedTuple):
    """Something that bounds a plan.

    `of` is a LinkKey for "link", (host, ISP) for "up" and "down", a host for "io", the name of a set for "shared", and
    "" for "budget".
    """

    kind: Literal["link", "up", "down", "io", "shared", "budget"]
    of: LinkKey | tuple[str, str] | str


@dataclass(frozen=True)
class Certificate:
    """Why a plan is sound and nothing is faster, for a checker that knows no solver (`coalloc.planner.certificate`).

    `prices` are a dual solution. Let every byte pay the prices of all limits that it passes: then in T seconds no more
    can be paid than sum(price x capacity) x T, and each byte pays at least what the cheapest way from a holder costs.
    So T >= sum(size x cheapest way) / sum(price x capacity). For a minimum cut the prices are one on what it cuts.

    :param origins: bytes of a file that each of its holders sends
    :param tolerance: how much more than the bound the makespan may be, relative; 0 where the solver is exact
    """

    prices: Mapping[Limit, Fraction]
    origins: Mapping[tuple[str, str], Fraction]
    tolerance: Fraction = Fraction(0)


@dataclass(frozen=True)
class TransferPlan:
    """All flows run side by side, each at the rate flow / makespan, from the first second to the last.

    :param method: how it was found
    :param makespan: seconds
    :param direct: seconds that the best plan without relays takes; None where not every file can go straight
    :param flows: bytes over each link; parts of bytes, so that the makespan is the least one exactly
    :param paths: the same in whole bytes; those of a file to a destination add up to its size, and their sum differs
        from each flow by less than a byte for each destination
    :param reason: one sentence: what limits it
    """

    method: str
    makespan: Fraction
    direct: Fraction | None
    flows: Mapping[LinkKey, Fraction]
    paths: tuple[Path, ...]
    reason: str
    certificate: Certificate = field(repr=False)

    @property
    def rates(self) -> dict[LinkKey, Fraction]:
        """Bytes per second over each link."""
        return {key: flow / self.makespan for key, flow in self.flows.items() if flow}
