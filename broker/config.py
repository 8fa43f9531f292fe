"""What the broker is told when it starts."""

from typing import Literal, NamedTuple

__all__ = ["Settings", "Strategy"]

Strategy = Literal["priority", "predicted", "distance", "random"]


class Settings(NamedTuple):
    """How one broker behaves; the defaults are meant to be good.

    :param database: its address, as SQLAlchemy writes it
    :param anonymous: who has no token may read
    :param ranking: by what replicas are ordered: each decides where those before it say nothing
    :param explore: of how many answers at most one puts a replica first of whose path nothing is known; 0 is never
    :param keep_days: what ended earlier is forgotten; None is never
    :param requests_per_second: of one caller, on average
    :param largest_body: bytes that a request may have, imports apart
    """

    database: str = "sqlite:///coget-broker.sqlite"
    anonymous: bool = False
    ranking: tuple[Strategy, ...] = ("priority", "predicted", "distance")
    explore: int = 20
    keep_days: float | None = None
    requests_per_second: float = 1000.0
    largest_body: int = 64 << 20
