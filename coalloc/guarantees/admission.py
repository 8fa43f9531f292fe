"""Admission of streams: which rates can be promised over which paths, and what could be instead. Pure.

The stream with the highest probability comes first, so a stream can be promised what the streams up to it leave. Where
no single path suffices, a stream is divided, and the joint distribution of these paths decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from coalloc.guarantees.contracts import RateForecast, forecast_rate, window_count
from coalloc.guarantees.groups import PathGroup, joint_rates
from coalloc.guarantees.streams import Stream

__all__ = ["CONFIDENCE", "AdmittedStream", "RateRequest", "Refusal", "admit"]

CONFIDENCE = 0.9
"""Probability with which a contract is kept."""
OFFERS = (0.99, 0.975, 0.95, 0.9, 0.8, 0.7, 0.5)
"""Probabilities that are tried for a stream that is refused."""
LEAST_PART = 0.01
"""Minimum part of a divided stream for each of its groups, relative to the room of all."""


class RateRequest(NamedTuple):
    """A stream that asks for a contract.

    :param seconds: duration of the contract
    """

    stream: Stream
    seconds: float

    @property
    def rate(self) -> float:
        """The rate in bytes per second, 0 for best effort."""
        return self.stream.rate or 0.0


class AdmittedStream(NamedTuple):
    """An admitted stream; one for best effort has no parts.

    :param request: for a stream that runs already: with the seconds that are left
    :param parts: bytes per second by the name of the group of paths; more than one if it is divided
    :param load: bytes per second that these paths must carry for it and the streams before it
    :param forecast: the forecast of what these paths can carry; None for best effort
    :param chance: probability that the contract is kept
    """

    request: RateRequest
    parts: Mapping[str, float]
    load: float
    forecast: RateForecast | None
    chance: float


class Refusal(NamedTuple):
    """A refused stream, and what would be possible.

    :param rate: the highest rate at its probability, 0 if there is none
    :param probability: the highest share of windows at its rate, None if there is none
    :param chance: probability that the contract would be kept as it was asked for
    :param further: name of the first of the spare groups that would be enough together with the others
    """

    request: RateRequest
    rate: float
    probability: float | None
    chance: float
    further: str | None


def admit(
    requests: Sequence[RateRequest],
    groups: Sequence[PathGroup],
    held: Sequence[AdmittedStream] = (),
    spare: Sequence[PathGroup] = (),
    confidence: float = CONFIDENCE,
) -> list[AdmittedStream | Refusal]:
    """Return for each request, in their order, where it is admitted or what could be admitted instead.

    Of streams with the same probability, those that are held come first, then the others in their order. A stream is
    not admitted if it would take from a stream that is held what that was promised.

    :param groups: groups of paths that may be used, with different names
    :param held: streams that were admitted before and still run
    :param spare: groups of paths that are not used, but could be
    :param confidence: probability with which each contract is to be kept
    :raises ValueError: a stream has windows that are shorter than those of which rates are known
    """
    capacity = _Capacity(confidence)
    outcomes: dict[int, AdmittedStream | Refusal] = {}
    state = _Admission(groups, spare, capacity, sorted(held, key=lambda each: -each.request.stream.probability))
    for number in sorted(range(len(requests)), key=lambda number: -requests[number].stream.probability):
        request = requests[number]
        state.advance(request.stream.probability)
        found = state.place(request)
        outcomes[number] = found or _refusal(request, state, spare)
    return [outcomes[number] for number in range(len(requests))]


class _Capacity:
    """Forecasts and promised rates of sets of groups, each computed once."""

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence
        self._rates: dict[tuple[object, ...], list[float]] = {}
        self._known: dict[tuple[object, ...], tuple[RateForecast | None, float]] = {}

    def of(self, groups: Sequence[PathGroup], request: RateRequest) -> tuple[RateForecast | None, float]:
        """Return the forecast for a contract over all of these groups, and the rate that can be promised."""
        stream, names = request.stream, tuple([group.name for group in groups])
        key = (names, stream.window, stream.probability, request.seconds)
        if key not in self._known:
            rates = self._rates_of(groups, stream.window)
            forecast = forecast_rate(rates, stream.probability, window_count(stream, request.seconds))
            errors = {id(group.errors): group.errors for group in groups}.values()
            promised = min(forecast.promise(self._confidence, each) for each in errors) if forecast else 0.0
            self._known[key] = forecast, promised
        return self._known[key]

    def _rates_of(self, groups: Sequence[PathGroup], window: float) -> list[float]:
        key = (*(group.name for group in groups), window)
        if key not in self._rates:
            self._rates[key] = joint_rates(groups, window)
        return self._rates[key]


class _Admission:
    """Streams placed so far, in the order of their precedence.

    :param later: held streams, the one with the highest probability first
    """

    def __init__(
        self,
        groups: Sequence[PathGroup],
        spare: Sequence[PathGroup],
        capacity: _Capacity,
        later: Sequence[AdmittedStream],
    ) -> None:
        self.groups = groups
        self._by_name = {group.name: group for group in [*spare, *groups]}
        self._capacity = capacity
        self._later = list(later)
        self._loads: dict[str, float] = {}

    def advance(self, probability: float) -> None:
        """Count the held streams that come before a stream with this probability."""
        while self._later and self._later[0].request.stream.probability >= probability:
            self._count(self._later.pop(0))

    def _count(self, placed: AdmittedStream) -> None:
        for name, rate in placed.parts.items():
            self._loads[name] = self._loads.get(name, 0.0) + rate

    def load(self, groups: Sequence[PathGroup], probability: float) -> float:
        """Return the rate of the streams on these groups that come before a stream with this probability."""
        load = sum([self._loads.get(group.name, 0.0) for group in groups])
        if not self._later:
            return load
        before = (each for each in self._later if each.request.stream.probability >= probability)
        return load + sum(each.parts.get(group.name, 0.0) for each in before for group in groups)

    def room(self, groups: Sequence[PathGroup], request: RateRequest) -> float:
        """Return the highest rate that can be promised over these groups; not positive if there is none."""
        promised = self._capacity.of(groups, request)[1] - self.load(groups, request.stream.probability)
        return min(promised, self._left_by_later(groups, request.stream.probability))

    def _left_by_later(self, groups: Sequence[PathGroup], probability: float) -> float:
        """Return what may be taken from these groups without harm to held streams of lower probability."""
        left = inf
        for placed in self._later:
            stream = placed.request.stream
            if stream.probability < probability and any(group.name in placed.parts for group in groups):
                used = [self._by_name[name] for name in placed.parts if name in self._by_name]  # others may be gone
                promised = self._capacity.of(used, placed.request)[1]
                left = min(left, promised - self.load(used, stream.probability))
        return left

    def chance(self, groups: Sequence[PathGroup], request: RateRequest) -> float:
        """Return the probability that the contract is kept if it is placed on these groups."""
        forecast, _ = self._capacity.of(groups, request)
        rate = self.load(groups, request.stream.probability) + request.rate
        return min([forecast.chance(rate, group.errors) for group in groups]) if forecast else 0.0

    def ordered(self, request: RateRequest) -> list[PathGroup]:
        """Return the groups, the one with the most room first."""
        return sorted(self.groups, key=lambda group: -self.room([group], request))

    def sets(self, request: RateRequest) -> Iterator[list[PathGroup]]:
        """Yield growing sets of two and more groups."""
        ordered = self.ordered(request)
        for number in range(2, len(ordered) + 1):
            yield ordered[:number]

    def place(self, request: RateRequest) -> AdmittedStream | None:
        """Place a stream: on the group on which it is kept most probably, else divided over as few as suffice."""
        if not request.rate:
            return AdmittedStream(request, {}, 0.0, None, 1.0)
        enough = [[group] for group in self.groups if self.room([group], request) >= request.rate]
        used = max(enough, key=lambda groups: self.chance(groups, request), default=None)
        if used is None:
            used = next((each for each in self.sets(request) if self.room(each, request) >= request.rate), None)
        if used is None:
            return None
        placed = AdmittedStream(
            request,
            self._parts(used, request),
            self.load(used, request.stream.probability) + request.rate,
            self._capacity.of(used, request)[0],
            self.chance(used, request),
        )
        self._count(placed)
        return placed

    def _parts(self, groups: Sequence[PathGroup], request: RateRequest) -> dict[str, float]:
        """Divide a rate in proportion to the room of each group.

        A group without room of its own gets a part, too: what was promised is what all of them carry together.
        """
        rooms = {group.name: self.room([group], request) for group in groups}
        least = LEAST_PART * sum(max(0.0, room) for room in rooms.values()) or 1.0
        parts = {name: max(least, room) for name, room in rooms.items()}
        return {name: request.rate * part / sum(parts.values()) for name, part in parts.items()}


def _refusal(request: RateRequest, state: _Admission, spare: Sequence[PathGroup]) -> Refusal:
    candidates = [[group] for group in state.groups] + list(state.sets(request))
    best = max(candidates, key=lambda groups: state.room(groups, request), default=[])
    if not best:
        further = _first_enough(request, state, spare)
        return Refusal(request, 0.0, None, 0.0, further)
    offers = (offer for offer in OFFERS if offer < request.stream.probability)
    fitting = (
        offer
        for offer in offers
        if state.room(best, request._replace(stream=request.stream._replace(probability=offer))) >= request.rate
    )
    return Refusal(
        request,
        max(0.0, state.room(best, request)),
        next(fitting, None),
        state.chance(best, request),
        _first_enough(request, state, spare),
    )


def _first_enough(request: RateRequest, state: _Admission, spare: Sequence[PathGroup]) -> str | None:
    ordered = state.ordered(request)
    for group in spare:
        sets = ([group, *ordered[:number]] for number in range(len(ordered) + 1))
        if any(state.room(each, request) >= request.rate for each in sets):
            return group.name
    return None
