"""The results of planners: the bytes on each path, the makespan, and the proof that it cannot be shorter."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

from coalloc.planner.network import LinkKey
from coalloc.planner.uncertainty import Caution

__all__ = ["Certificate", "Limit", "PlannedPath", "TransferPlan"]


class PlannedPath(NamedTuple):
    """Bytes of a file that take the same path: from a holder, over relays, to a destination.

    A path of one host means that this host both holds and wants the file, so that no bytes are sent.
    """

    file: str
    hosts: tuple[str, ...]
    bytes: int


class Limit(NamedTuple):
    """A limit of a plan.

    `of` is a LinkKey for "link", (host, ISP) for "up" and "down", a host for "io", the name of a set for "shared", and
    "" for "budget".
    """

    kind: Literal["link", "up", "down", "io", "shared", "budget"]
    of: LinkKey | tuple[str, str] | str


@dataclass(frozen=True)
class Certificate:
    """The proof that a plan is sound and the fastest, for a checker without a solver (`coalloc.planner.certificate`).

    `prices` are a dual solution. Let every byte pay the prices of all limits that it passes. In T seconds, the bytes
    can pay at most sum(price x capacity) x T, and each byte pays at least the cost of the cheapest path from a holder.
    So T >= sum(size x cheapest path) / sum(price x capacity). For a minimum cut, the prices are one on the links that
    it cuts.

    :param origins: bytes of each file that each of its holders sends
    :param tolerance: maximum relative excess of the makespan over the bound; 0 if the solver is exact
    :param caution: if given, the plan is proved to be the fastest for cautious capacities
        (`coalloc.planner.uncertainty.lowered`), or among those that relay only files without a direct path
        (`NO_RELAYS`); its makespan is that for the stated capacities
    """

    prices: Mapping[Limit, Fraction]
    origins: Mapping[tuple[str, str], Fraction]
    tolerance: Fraction = Fraction(0)
    caution: Caution | None = None


@dataclass(frozen=True)
class TransferPlan:
    """A plan whose flows all run at the same time, each at the rate flow / makespan, from the first second to the last.

    :param method: name of the method that found the plan
    :param makespan: duration in seconds
    :param direct: seconds that the best plan without relays takes; None if some file cannot be sent directly
    :param flows: bytes over each link, including fractions of bytes, so that the makespan is exactly the least
    :param paths: the flows in whole bytes; the paths of a file to a destination add up to its size, and the sum over a
        link differs from its flow by less than a byte for each destination (two, if only some files are relayed)
    :param reason: the limits of the plan, in one sentence
    :param chance: probability that relays are faster than direct transfers; None if all capacities are certain, or
        relays are not in question
    """

    method: str
    makespan: Fraction
    direct: Fraction | None
    flows: Mapping[LinkKey, Fraction]
    paths: tuple[PlannedPath, ...]
    reason: str
    certificate: Certificate = field(repr=False)
    chance: float | None = None

    @property
    def rates(self) -> dict[LinkKey, Fraction]:
        """Bytes per second over each link."""
        return {key: flow / self.makespan for key, flow in self.flows.items() if flow}
