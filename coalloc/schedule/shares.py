"""The arithmetic of shares: how many bytes each source gets. Pure functions on numbers."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

__all__ = ["cut", "equal_shares", "fill_shares", "proportional_shares", "tail"]

Range = tuple[int, int]


def proportional_shares(total: int, weights: Sequence[float]) -> list[int]:
    """Split `total` bytes in proportion to `weights`; the parts are whole bytes and add up to `total`.

    >>> proportional_shares(100, [4, 2, 1])
    [57, 29, 14]
    """
    whole = sum(weights)
    edges, passed = [0], 0.0
    for weight in weights:
        passed += weight
        edges.append(round(total * passed / whole))
    edges[-1] = total
    return [b - a for a, b in pairwise(edges)]


def equal_shares(total: int, n: int) -> list[int]:
    """Split `total` bytes into `n` parts that differ by at most one byte."""
    return [total // n + (i < total % n) for i in range(n)]


def fill_shares(
    total: int, setups: Sequence[float], rates: Sequence[float], smallest: int = 0
) -> tuple[list[int], float]:
    """Return the shares with the least makespan: all sources finish together, each after its set-up.

    Finds T with sum(max(0, T - setup_i) * rate_i) = total ("water filling"), and gives source i the bytes that it
    delivers until T. A source whose share would be below `smallest` bytes gets none.

    :returns: bytes for each source, and the makespan T in seconds
    """
    users = sorted(range(len(rates)), key=lambda i: setups[i])
    while True:
        makespan = _water_level(total, [setups[i] for i in users], [rates[i] for i in users])
        wanted = {i: (makespan - setups[i]) * rates[i] for i in users}
        least = min(users, key=lambda i: wanted[i])
        if len(users) == 1 or wanted[least] >= max(smallest, 1):
            break
        users.remove(least)
    order = sorted(users)
    shares = [0] * len(rates)
    for i, nbytes in zip(order, proportional_shares(total, [max(wanted[i], 1e-9) for i in order]), strict=True):
        shares[i] = nbytes
    return shares, makespan


def _water_level(total: int, setups: Sequence[float], rates: Sequence[float]) -> float:
    """Return the makespan T of sources sorted by set-up time; each delivers from its set-up on."""
    level, speed, poured = setups[0], 0.0, 0.0
    for i, rate in enumerate(rates):
        poured += speed * (setups[i] - level)
        if poured > total:
            return level + (total - poured + speed * (setups[i] - level)) / speed
        level, speed = setups[i], speed + rate
    return level + (total - poured) / speed


def cut(ranges: Iterable[Range], sizes: Sequence[int]) -> list[list[Range]]:
    """Divide `ranges` in order into parts of `sizes[i]` bytes each, of as few ranges as possible.

    >>> cut([(0, 10), (20, 30)], [5, 15])
    [[(0, 5)], [(5, 10), (20, 30)]]
    """
    parts: list[list[Range]] = [[] for _ in sizes]
    left = list(sizes)
    to = 0
    for start, end in ranges:
        while start < end:
            while left[to] == 0:
                to += 1
            taken = min(left[to], end - start)
            parts[to].append((start, start + taken))
            left[to] -= taken
            start += taken
    return parts


def tail(ranges: Sequence[Range], nbytes: int) -> int:
    """Return the offset where the last `nbytes` bytes of `ranges` begin; the first start if they are shorter."""
    for start, end in reversed(ranges):
        if nbytes <= end - start:
            return end - nbytes
        nbytes -= end - start
    return ranges[0][0]
