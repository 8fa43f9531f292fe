"""The settings of one direction of a link, and their notation in topologies. Pure; emulator/shaper.h has them in C.

`topology` defines links and hosts.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from tests.testbed import units

__all__ = ["MTU", "Bursts", "Cross", "Settings", "TopologyError"]

MTU = 1500


class TopologyError(ValueError):
    """An invalid topology, or an invalid change of a link; the message says where and why."""


@dataclass(frozen=True)
class Bursts:
    """Loss in bursts (Gilbert and Elliott).

    :param start: probability, per packet, that a burst starts
    :param end: probability, per packet, that the burst ends
    :param loss: probability that a packet in a burst is lost
    """

    start: float
    end: float
    loss: float = 1.0


@dataclass(frozen=True)
class Cross:
    """Cross traffic: packets of 1500 bytes at random times, which use part of the link's rate and queue.

    :param rate: bytes per second in a busy time
    :param busy: mean length of the busy times in seconds; 0: one that never ends
    :param quiet: mean length of the pauses in seconds
    """

    rate: float
    busy: float = 0.0
    quiet: float = 0.0


@dataclass(frozen=True)
class Settings:
    """The settings of one direction of a link. Packets pass its queue, its rate, its loss and its delay, in this order.

    :param rate: bytes per second, including IP headers
    :param delay: one-way delay in seconds
    :param jitter: additional random delay of each packet, up to this many seconds; packets stay in order
    :param queue: size of the queue in bytes; packets that do not fit are dropped
    :param loss: probability that a packet is lost
    """

    rate: float
    delay: float
    jitter: float
    queue: int
    loss: float
    bursts: Bursts | None = None
    cross: Cross | None = None

    def changed(self, **words: object) -> "Settings":
        """Return a copy with some settings changed, written as in a topology.

        A new rate does not change the size of the queue in bytes, as with the memory of a router.

        :raises TopologyError: a setting is unknown or invalid
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
    """Return the functions that read the settings.

    :param rate: bytes per second, to convert the size of a queue from a time to bytes
    """
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
    """Return the size of a queue in bytes; a time stands for the bytes that the link sends in that time."""
    try:
        queue = units.duration(word) * rate
    except ValueError:
        queue = units.size(word)
    return max(round(queue), 2 * MTU)  # a smaller queue would drop every second packet of a pair


def _part(word: object, kind: Any, readers: Mapping[str, Callable[[object], float]]) -> Any:
    """Read a setting that is itself a mapping; None stands for no such setting."""
    if word is None:
        return None
    if not isinstance(word, Mapping) or not set(word) <= set(readers):
        raise ValueError(f"{word!r} is not a mapping of {', '.join(readers)}")
    missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in word]
    if missing:
        raise ValueError(f"{word!r}: {', '.join(missing)} is missing")
    return kind(**{name: readers[name](value) for name, value in word.items()})
