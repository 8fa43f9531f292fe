"""Deadlines and promised rates in words, for terminals and logs."""

from coalloc.model.promises import DeadlineReport, DeadlineView, RateReport, RateView
from coalloc.util import human

__all__ = ["outlook", "result", "warning"]


def outlook(view: DeadlineView | RateView) -> str:
    """Return how probable it is that a promise is kept, and what holds with the wanted probability."""
    if isinstance(view, DeadlineView):
        return _deadline(view)
    rate = f"{human.rate(view.wanted.rate)} in {100 * view.wanted.share:g} % of the seconds"
    if view.chance is None:
        return f"{rate}: being measured"
    offers = [human.rate(view.possible)] if view.possible else []
    offers += [f"{100 * view.share:g} % of the seconds"] if view.share else []
    possible = f", {' or '.join(offers)} can be promised" if offers else ""
    return f"{rate}: {human.probability(view.chance)}{possible}"


def _deadline(view: DeadlineView) -> str:
    by, sure = human.moment(view.deadline.at), f"{100 * view.deadline.sure:g} %"
    if view.chance is None:
        return f"by {by}: not known yet, as nothing is known about these sources"
    parts = [f"by {by}: {human.probability(view.chance)}"]
    if view.later is not None:
        parts.append(f"{sure} by {human.moment(view.later)}")
    return ", ".join(parts)


def warning(view: DeadlineView | RateView) -> str:
    """Return the sentence of a warning."""
    return f"{human.moment(view.moment)}: {outlook(view)}, with all sources"


def result(report: DeadlineReport | RateReport) -> str:
    """Return whether a promise was kept; for a deadline, how many sources it spared."""
    if isinstance(report, RateReport):
        rate, seconds = human.rate(report.first.wanted.rate), human.counted(report.seconds, "second")
        return f"{rate}: {'kept' if report.kept else 'not kept'}, {report.missed} of {seconds} had less"
    at = human.moment(report.first.deadline.at)
    spared = f"; {human.counted(report.spared, 'source')} spared" if report.spared else ""
    if report.guarantee is not None:
        spared += "; the broker's reservation ended before" if report.is_over else "; reserved by the broker"
    if report.ended is None:
        return f"by {at}: not complete"
    early = report.first.deadline.at - report.ended
    kept = f"kept, {human.duration(early)} before" if early >= 0 else f"missed, {human.duration(-early)} late"
    return f"by {at}: {kept}{spared}"
