"""A forecast of a transfer: the shares of the sources, the duration, and the reason in a sentence. Pure."""

from collections.abc import Mapping, Sequence
from math import exp, log
from random import Random

from coalloc.errors import SourceError
from coalloc.model.checksums import Checksum
from coalloc.model.forecasts import Estimate
from coalloc.model.plans import Plan, PlannedShare
from coalloc.model.replicas import ReplicaSet, Stat
from coalloc.schedule.policies import Policy
from coalloc.schedule.shares import fill_shares, proportional_shares
from coalloc.schedule.state import State

__all__ = ["preview"]

DRAWS = 400
"""Number of random draws of the rates: enough for the p10 and p90 to vary by only some percent."""


def preview(
    file: ReplicaSet,
    estimates: Sequence[Estimate],
    policy: Policy,
    answers: Mapping[int, Stat | SourceError],
    checksums: Sequence[Checksum] = (),
) -> Plan:
    """Return the plan for a file with these answers of its servers, at least one of which is a `Stat`.

    Strategies that assign blocks have no shares beforehand; shares proportional to the rates are assumed for them.
    """
    size = next(answer.size for answer in answers.values() if isinstance(answer, Stat))
    state = State(size, estimates)
    for source in state.sources:
        answer = answers.get(source.index)
        source.status = "idle" if isinstance(answer, Stat) else "dropped"
        source.ranged = isinstance(answer, Stat) and answer.ranged
    expected = _expected_bytes(state, policy)
    ranked = sorted(expected, key=lambda source: -expected[source])
    shares = tuple(
        PlannedShare(
            url=replica.url,
            bytes=expected.get(i, 0),
            fraction=expected.get(i, 0) / size if size else 0.0,
            estimate=estimates[i],
            priority=ranked.index(i) + 1 if i in expected else None,
            error=_why_not(answers.get(i)),
        )
        for i, replica in enumerate(file.replicas)
    )
    left_out = tuple(PlannedShare(url, 0, 0.0, Estimate(), error=why) for url, why in file.left_out)
    return Plan(
        name=file.name,
        size=size,
        strategy=policy.name,
        seconds=_seconds(state, expected),
        rationale=policy.explain(state, 0.0),
        shares=shares + left_out,
        checksums=tuple(checksums),
        bounds=_bounds(state, expected, policy.rebalances),
    )


def _expected_bytes(state: State, policy: Policy) -> dict[int, int]:
    usable = [source for source in state.sources if source.usable and source.ranged]
    if not usable:  # only servers that ignore ranges: the first sends everything
        usable = [source for source in state.sources if source.usable][:1]
    elif shares := policy.shares(state, 0.0):
        return {source: sum(b - a for a, b in ranges) for source, ranges in shares.items()}
    sizes = proportional_shares(state.size, [state.rate(source, 0.0) for source in usable])
    return {source.index: nbytes for source, nbytes in zip(usable, sizes, strict=True)}


def _seconds(state: State, expected: Mapping[int, int]) -> float | None:
    """Return the longest time that any source needs for its share; None if no rate is known."""
    sources = [state.sources[index] for index in expected]
    if not any(source.estimate.rate for source in sources):
        return None
    return max(state.setup(source) + expected[source.index] / state.rate(source, 0.0) for source in sources)


def _bounds(state: State, expected: Mapping[int, int], rebalances: bool) -> tuple[float, float] | None:
    """Return the p10 and p90 of the transfer's seconds, assuming that the sources' rates are independent.

    With a strategy that rebalances, each source begins after its set-up, and all end together; with other strategies,
    the file is complete when the last source has delivered its share.
    """
    sources = [state.sources[index] for index in expected]
    if not any(source.estimate.bounds for source in sources):
        return None
    chance, seconds = Random(0), []
    setups = [state.setup(source) for source in sources]
    for _ in range(DRAWS):
        rates = [_drawn(source.estimate, state.rate(source, 0.0), chance.random()) for source in sources]
        if rebalances:
            seconds.append(fill_shares(sum(expected.values()), setups, rates)[1])
        else:
            parts = zip(sources, setups, rates, strict=True)
            seconds.append(max(setup + expected[source.index] / rate for source, setup, rate in parts))
    seconds.sort()
    return seconds[DRAWS // 10], seconds[-DRAWS // 10]


def _drawn(estimate: Estimate, usual: float, share: float) -> float:
    """Return the quantile `share` of a source's rate, interpolated through the p10, p50 and p90: linear in the log."""
    if estimate.bounds is None:
        return usual
    low, high = estimate.bounds
    away = low if share < 0.5 else high
    return usual * exp((share - 0.5) / 0.4 * abs(log(away / usual))) if away > 0 else usual


def _why_not(answer: Stat | SourceError | None) -> str | None:
    if isinstance(answer, SourceError):
        return answer.message
    return None if answer else "it was not asked"
