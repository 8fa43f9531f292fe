"""The numbers of the reports, as Prometheus metrics."""

from collections.abc import Iterator

from fastapi import Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader
from broker.handlers.routers import own_router
from broker.reports.words import size_span
from broker.services.forecasting.monitoring import MonitoringNumbers

__all__ = ["router"]

SIZE = ("size",)
router = own_router("operation")


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(caller: Reader, request: Request, services: Services) -> Response:
    """Return the metrics of /metrics, and metrics of transfers by link, tasks, workers, and forecast quality.

    All readers may see them, since they may list all transfers anyway.
    """
    registry = CollectorRegistry()
    registry.register(_Shown(await services.monitoring.measured()))
    both = generate_latest(request.app.state.registry) + generate_latest(registry)
    return Response(both, media_type=CONTENT_TYPE_LATEST)


class _Shown(Collector):
    """A Prometheus collector of these metrics."""

    def __init__(self, measured: MonitoringNumbers | None) -> None:
        self._measured = measured

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, or only `coget_measured` if the database did not answer."""
        known = self._measured is not None
        yield GaugeMetricFamily(
            "coget_measured", "Whether the database answered the queries for the following metrics", known
        )
        if self._measured:
            yield from _traffic(self._measured)
            yield from _work(self._measured)
            yield from _forecasts(self._measured)


def _traffic(measured: MonitoringNumbers) -> Iterator[Metric]:
    link_labels = ("source", "sink")
    ended = CounterMetricFamily(
        "coget_transfers", "Transfers reported since the first query to this process", labels=(*link_labels, "outcome")
    )
    moved = CounterMetricFamily("coget_transfer_bytes", "Bytes moved by these transfers", labels=link_labels)
    for link, sums in measured.totals.items():
        ended.add_metric((*link, "ok"), sums.transfers - sums.failures)
        ended.add_metric((*link, "failed"), sums.failures)
        moved.add_metric(link, sums.bytes)
    yield from (ended, moved)


def _work(measured: MonitoringNumbers) -> Iterator[Metric]:
    tasks = GaugeMetricFamily("coget_tasks", "Unfinished tasks", labels=("state",))
    for state, count in sorted(measured.tasks.items()):
        tasks.add_metric((state,), count)
    yield tasks
    yield GaugeMetricFamily("coget_workers", "Workers that run tasks", measured.workers)
    behind = GaugeMetricFamily("coget_lagging_transfers", "Transfers that are not yet counted in", labels=("sums",))
    for name, count in measured.waiting._asdict().items():
        behind.add_metric((name,), count)
    yield behind


def _forecasts(measured: MonitoringNumbers) -> Iterator[Metric]:
    """Yield the metrics of this and last week's forecasts, by file size."""
    rest = GaugeMetricFamily("coget_forecast_transfers", "Transfers with scored forecasts", labels=SIZE)
    error = GaugeMetricFamily("coget_forecast_error_ratio", "Median of |forecast / actual - 1|", labels=SIZE)
    bias = GaugeMetricFamily("coget_forecast_bias_ratio", "Median of forecast / actual", labels=SIZE)
    inside = GaugeMetricFamily("coget_forecast_coverage_ratio", "Share between p10 and p90, ideally 0.8", labels=SIZE)
    for number, tally in measured.errors.items():
        size = (size_span(number),)
        rest.add_metric(size, tally.transfers)
        error.add_metric(size, tally.mdape)
        bias.add_metric(size, tally.bias)
        inside.add_metric(size, tally.coverage)
    yield from (rest, error, bias, inside)
    yield CounterMetricFamily(
        "coget_regret_seconds", "Seconds that downloads took longer than with the best shares", measured.lost
    )
