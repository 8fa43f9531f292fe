"""Deadlines of transfers in words, for terminals and logs."""

from coalloc.model import DeadlineReport, DeadlineView
from coalloc.util import human

__all__ = ["outlook", "result", "warning"]


def outlook(view: DeadlineView) -> str:
    """Return how probable it is that the deadline is kept, and the time that holds with the wanted probability."""
    by, sure = human.moment(view.deadline.at), f"{100 * view.deadline.sure:g} %"
    if view.chance is None:
        return f"by {by}: not known yet, as nothing is known about these sources"
    parts = [f"by {by}: {human.probability(view.chance)}"]
    if view.later is not None:
        parts.append(f"{sure} by {human.moment(view.later)}")
    return ", ".join(parts)


def warning(view: DeadlineView) -> str:
    """Return the sentence of a warning."""
    return f"{human.moment(view.moment)}: {outlook(view)}, with all sources"


def result(report: DeadlineReport) -> str:
    """Return whether the deadline was kept, and how many sources it spared."""
    at = human.moment(report.first.deadline.at)
    spared = f"; {human.counted(report.spared, 'source')} spared" if report.spared else ""
    if report.ended is None:
        return f"by {at}: not complete"
    early = report.first.deadline.at - report.ended
    kept = f"kept, {human.duration(early)} before" if early >= 0 else f"missed, {human.duration(-early)} late"
    return f"by {at}: {kept}{spared}"
