"""Paths that count as one for admission, and the joint distribution of several. Pure."""

from collections.abc import Sequence

from coalloc.guarantees.contracts import ContractErrors
from coalloc.guarantees.samples import PathSamples

__all__ = ["PathGroup", "joint_rates"]


class PathGroup:
    """One path, or several that share a bottleneck and so count as one.

    :ivar name: its name, unique among the groups
    :ivar errors: errors of the past for its class of paths

    :param members: the windows of its paths
    """

    def __init__(self, name: str, members: Sequence[PathSamples], errors: ContractErrors | None = None) -> None:
        self.name = name
        self.errors = errors or ContractErrors()
        self._members = members
        self._counts: list[int] = []
        self._rates: dict[float, dict[int, float]] = {}

    def rates(self, window: float) -> dict[int, float]:
        """Return samples of what the group carries, by the number of their window, in order.

        Where one of several paths was not limited by us, the bottleneck was full: what all of them carried together is
        a sample. A path that was idle carried nothing.
        """
        counts = [member.count for member in self._members]
        if counts != self._counts:
            self._counts, self._rates = counts, {}
        if window not in self._rates:
            self._rates[window] = self._sampled(window)
        return self._rates[window]

    def _sampled(self, window: float) -> dict[int, float]:
        known = [member.windows(window) for member in self._members]
        if len(known) == 1:
            return {index: found.rate for index, found in sorted(known[0].items()) if not found.limited}
        full = sorted({index for each in known for index, found in each.items() if not found.limited})
        return {index: sum(each[index].rate for each in known if index in each) for index in full}


def joint_rates(groups: Sequence[PathGroup], window: float) -> list[float]:
    """Return what one or more groups carried together, in the windows that are samples of each of them, in order.

    The distribution of the sum cannot be had from the distributions of the parts: parts that keep their rate with 95 %
    each keep both with 90 % if they are independent (theorem 1 of IQ-Paths overlooks this).
    """
    known = [group.rates(window) for group in groups]
    if len(known) == 1:
        return list(known[0].values())
    common = set(known[0]).intersection(*known[1:])
    return [sum(each[index] for each in known) for index in sorted(common)]
