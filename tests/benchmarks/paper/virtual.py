"""The paper's experiments in virtual time: the real scheduler, simulated sources, and times as with the paper's files.

Files and rates are scaled down by the same factor, so that all times are those of the paper's file sizes. TCP is not
simulated: a source sends at its full rate from its first byte on, and sources behind one bottleneck take turns.
"""

from functools import cache
from random import Random
from statistics import fmean

from coalloc.download.report import source_reports
from coalloc.model.forecasts import Estimate
from coalloc.testing.simulated import Behaviour, Bottleneck
from tests.benchmarks.paper.experiments import ETHERNET, EXPERIMENTS, SCALE, Experiment, Scheme
from tests.benchmarks.paper.measures import Record
from tests.support.simulation import simulate

__all__ = ["run_virtually"]

MB = 1_000_000
MBIT = MB / 8
LARGEST = 10
"""Largest simulated file in MB; larger files are scaled down to it."""
CHUNKS = 400
"""Number of chunks of a file."""
TRIPS = 2
"""Round trips to log in at a GridFTP server; as many again to the first byte of a range."""
EARLIER = (-1, -2, -3)
"""Seeds of the runs that give `history` its forecasts."""


def run_virtually(experiment: Experiment, scheme: Scheme, size: int, seed: int) -> Record:
    """Fetch a file of a size (of the paper, in MB) in the weather of a seed."""
    estimates = _estimates(experiment.name, size) if scheme.strategy == "history" else {}
    behaviours = {
        server: behaviour
        for server, behaviour in _behaviours(experiment, size, seed).items()
        if scheme.server in (None, server)
    }
    result = simulate(
        _content(round(size * MB / _scale(size))),
        list(behaviours.values()),
        scheme.strategy,
        blocks=scheme.blocks,
        estimates=[estimates.get(server, Estimate()) for server in behaviours],
    )
    if result.error:
        raise result.error
    reports = source_reports(result.scheduler.state, list(behaviours), {}, 0.0, result.seconds)
    delivered = {
        report.url: max((copy.last_byte or 0.0 for copy in report.copies if copy.bytes), default=None)
        for report in reports
    }
    return Record(experiment.name, scheme.name, size, seed, size / result.seconds, result.seconds, delivered)


def _behaviours(experiment: Experiment, size: int, seed: int) -> dict[str, Behaviour]:
    """Return the behaviour of each server: on a path of its own, or behind the shared bottleneck."""
    mbit = MBIT / _scale(size)
    rates: dict[str, list[tuple[float, float]]] = {link: [] for link in experiment.routes}
    for second, link, rate in experiment.weather(seed):
        rates[link].append((second * SCALE, rate * mbit))
    ethernet = ((0.0, ETHERNET * mbit),)
    if experiment.shared:
        ((link, route),) = experiment.routes.items()
        ways = dict.fromkeys(experiment.servers, (ethernet, Bottleneck(tuple(rates[link])), route))
    else:
        client = Bottleneck(ethernet)
        ways = {
            server: (tuple(rates[link]), client, route)
            for server, (link, route) in zip(experiment.servers, experiment.routes.items(), strict=True)
        }
    return {
        server: Behaviour(
            rates=own,
            behind=behind,
            connect_seconds=TRIPS * route.round_trip / 1e3,
            setup_seconds=TRIPS * route.round_trip / 1e3,
            chunk=round(size * MB / _scale(size) / CHUNKS),
        )
        for server, (own, behind, route) in ways.items()
    }


@cache
def _estimates(experiment: str, size: int) -> dict[str, Estimate]:
    """Return the forecast of each server's rate, from earlier runs in which it delivered alone."""
    known = EXPERIMENTS[experiment]
    return {
        server: Estimate(
            rate=fmean(run_virtually(known, single, size, seed).bandwidth for seed in EARLIER) * MB / _scale(size)
        )
        for server, single in zip(known.servers, known.singles, strict=True)
    }


def _scale(size: int) -> float:
    return max(1.0, size / LARGEST)


@cache
def _content(size: int) -> bytes:
    return Random(size).randbytes(size)
