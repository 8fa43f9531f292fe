"""Progress of a download in a notebook: `NotebookProgress`, which shows the file and each of its sources.

It is HTML without scripts, which the notebook keeps. Where no front end shows HTML, it prints lines of text.
"""

import sys
from html import escape
from typing import Any

from coalloc.display.text import Lines
from coalloc.model.progress import Snapshot, SourceView
from coalloc.util import human

__all__ = ["NotebookProgress"]

REDRAW_SECONDS = 0.25
"""Pause between two pictures, in the time of the download."""
COLOURS = {"stalled": "#b26a00", "waiting": "#b26a00", "pausing": "#b26a00", "dropped": "#c62828"}
"""Colours of states that users should notice: readable on white and on black."""
CELL = "padding:2px 12px 2px 0;border:0;background:none;text-align:{};white-space:nowrap;min-width:{}"
ROW = "<tr style='background:none'>{}</tr>"
QUIET = "opacity:.7"


class NotebookProgress:
    """A watcher for `api.download`: `await api.download(request, NotebookProgress())`."""

    def __init__(self) -> None:
        self._lines = None if _shows_html() else Lines(sys.stdout)
        self._last: Snapshot | None = None
        self._drawn_at = 0.0
        self._handle: Any = None

    def __call__(self, now: Snapshot) -> None:
        """Show the state of the download, unless the last picture is recent and of the same phase."""
        if self._lines:
            self._lines.show(now)
            return
        last, self._last = self._last, now
        if last is None or last.name != now.name:
            self._handle = None
        elif last.phase == now.phase and now.seconds - self._drawn_at < REDRAW_SECONDS:
            return
        self._drawn_at = now.seconds
        self._draw(now)

    def _draw(self, now: Snapshot) -> None:
        from IPython.display import HTML, display

        picture = HTML(_picture(now))
        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)


def _shows_html() -> bool:
    """Return whether this runs in the kernel of a notebook; IPython in a terminal shows no HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


def _picture(now: Snapshot) -> str:
    """Return the whole state as HTML. All text in it may be foreign, and is escaped."""
    title = f"<b>{_text(now.name)}</b> &nbsp;{now.phase} &nbsp;<span style='{QUIET}'>{_numbers(now)}</span>"
    done = f" value='{now.done_bytes / now.size:.4f}'" if now.size else " value='1'" * (now.phase == "done")
    bar = f"<progress max='1'{done} aria-label='{_text(now.name)}' style='width:100%;max-width:40em'></progress>"
    names = human.labels([source.url for source in now.sources])
    rows = "".join(map(_row, names, now.sources))
    table = f"<table style='border:0;margin:0'><tbody>{rows}</tbody></table>" if rows else ""
    return f"<div style='font-variant-numeric:tabular-nums'>{title}<br>{bar}{table}</div>"


def _numbers(now: Snapshot) -> str:
    if not now.size:
        return human.duration(now.seconds)
    parts = [
        human.percent(now.done_bytes, now.size),
        f"{human.size(now.done_bytes)} of {human.size(now.size)}",
        human.rate(now.rate),
        f"in {human.duration(now.seconds)}",
        *([human.remaining(now.eta_seconds)] if now.eta_seconds else []),
    ]
    return ", ".join(parts)


def _row(name: str, source: SourceView) -> str:
    """Return the row of one source; its error has a row of its own."""
    state = f"<span style='color:{COLOURS.get(source.state, 'inherit')}'>{source.state}</span>"
    share = f"<progress max='1' value='{source.share:.4f}' aria-label='share' style='width:8em'></progress>"
    cells = [
        ("left", "10em", _text(name)),
        ("left", "6em", state),
        ("right", "6em", human.rate(source.rate) if source.rate else "-"),
        ("right", "5em", human.size(source.bytes)),
        ("right", "3em", human.percent(source.share, 1)),
        ("left", "8em", share),
    ]
    row = "".join(f"<td style='{CELL.format(side, width)}'>{cell}</td>" for side, width, cell in cells)
    if not source.error:
        return ROW.format(row)
    why = _text(human.about(name, source.url, source.error))
    colour = COLOURS["dropped" if source.state == "dropped" else "waiting"]
    wide = f"{CELL.format('left', 'auto')};white-space:normal;color:{colour}"
    return ROW.format(row) + ROW.format(f"<td colspan='{len(cells)}' style='{wide}'>{why}</td>")


def _text(text: str) -> str:
    return escape(human.one_line(text))
