"""The choice of pairs to measure, and their order. Pure."""

from collections.abc import Iterable, Sequence
from random import Random

__all__ = ["pairs", "rounds"]

Pair = tuple[str, str]


def pairs(sources: Sequence[str], sinks: Sequence[str], peers: int | None, random: Random) -> list[Pair]:
    """Return the pairs of each source with all sinks, or with `peers` of them (Confluence, 3.2), chosen at random.

    No server is paired with itself.
    """
    chosen: list[Pair] = []
    for source in sources:
        others = [sink for sink in sinks if sink != source]
        if peers is not None and peers < len(others):
            others = random.sample(others, peers)
        chosen += [(source, sink) for sink in others]
    return chosen


def rounds(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Group the pairs into rounds, whose pairs are measured at once: in a round, each server is in at most one pair."""
    left, made = list(pairs), []
    while left:
        busy: set[str] = set()
        this: list[Pair] = []
        for pair in left:
            if busy.isdisjoint(pair):
                busy.update(pair)
                this.append(pair)
        left = [pair for pair in left if pair not in this]
        made.append(this)
    return made
