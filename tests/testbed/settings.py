"""Settings of one direction of a link, and their notation. Pure; emulator/shaper.h has the same in C.

Which links there are is left to `topology`.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from tests.testbed import units

__all__ = ["MTU", "Bursts", "Cross", "Settings", "TopologyError"]

MTU = 1500


class TopologyError(ValueError):
    """A topology, or a change of a link, makes no sense; the message says where and why."""


@dataclass(frozen=True)
class Bursts:
    """Loss in bursts (Gilbert and Elliott): probabilities per packet that a burst starts, that it ends, and of loss
    within it."""

    start: float
    end: float
    loss: float = 1.0


@dataclass(frozen=True)
class Cross:
    """Packets of other traffic, 1500 bytes each at random times, which use part of rate and queue.

    :param rate: bytes per second while they come
    :param busy: mean length of the times with them, seconds; 0: always
    :param quiet: mean length of the pauses, seconds
    """

    rate: float
    busy: float = 0.0
    quiet: float = 0.0


@dataclass(frozen=True)
class Settings:
    """The effects of one direction of a link on packets: waiting, rate, loss, then delay.

    :param rate: bytes per second, IP headers included
    :param delay: seconds one way
    :param jitter: seconds; each packet is delayed by up to this more, order is kept
    :param queue: bytes; what does not fit is dropped
    :param loss: probability per packet
    """

    rate: float
    delay: float
    jitter: float
    queue: int
    loss: float
    bursts: Bursts | None = None
    cross: Cross | None = None

    def changed(self, **words: object) -> "Settings":
        """Return a copy with some settings changed, given as in a topology.

        A queue that is not named keeps its bytes, as a router's memory does when the rate changes.

        :raises TopologyError: a setting is unknown or makes no sense
        """
        unknown = set(words) - {field.name for field in fields(self)}
        if unknown:
            raise TopologyError(f"unknown: {', '.join(sorted(unknown))}; a link has {', '.join(_readers(1.0))}")
        rate = _read("rate", units.rate, words["rate"]) if "rate" in words else self.rate
        readers = _readers(rate)
        new = {name: _read(name, readers[name], word) for name, word in words.items()}
        return replace(self, **new)


def _read(name: str, reader: Callable[[Any], Any], word: object) -> Any:
    try:
        return reader(word)
    except ValueError as error:
        raise TopologyError(f"{name}: {error}") from None


def _readers(rate: float) -> dict[str, Callable[[Any], Any]]:
    """Return the reader of each setting, at a rate (bytes per second) that turns a queue in milliseconds into bytes."""
    return {
        "rate": _rate,
        "delay": units.duration,
        "jitter": units.duration,
        "queue": lambda word: _queue(word, rate),
        "loss": units.probability,
        "bursts": lambda word: _part(word, Bursts, dict.fromkeys(("start", "end", "loss"), units.probability)),
        "cross": lambda word: _part(word, Cross, {"rate": _rate, "busy": units.duration, "quiet": units.duration}),
    }


def _rate(word: object) -> float:
    rate = units.rate(word)
    if rate <= 0:
        raise ValueError("must be more than 0; for a link that carries nothing, write loss: 100%")
    return rate


def _queue(word: object, rate: float) -> int:
    """Return bytes; a time means the bytes that the link sends in it."""
    try:
        queue = units.duration(word) * rate
    except ValueError:
        queue = units.size(word)
    return max(round(queue), 2 * MTU)  # with less, no pair of packets would pass


def _part(word: object, kind: Any, readers: Mapping[str, Callable[[object], float]]) -> Any:
    """Return a setting that is a mapping itself; None removes it."""
    if word is None:
        return None
    if not isinstance(word, Mapping) or not set(word) <= set(readers):
        raise ValueError(f"{word!r} is not a mapping of {', '.join(readers)}")
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in word]
    if missing:
        raise ValueError(f"{word!r}: {', '.join(missing)} is missing")
    return kind(**{name: readers[name](value) for name, value in word.items()})
