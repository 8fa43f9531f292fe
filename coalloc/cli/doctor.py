"""`coget doctor`: check this machine, and whether servers answer."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from coalloc.cli import interrupts, options
from coalloc.errors import CoallocError, NothingToFetchFrom
from coalloc.util.streams import say_json

if TYPE_CHECKING:
    from coalloc.api import Engine, Probe
    from coalloc.cli.checkup import Finding

__all__ = ["doctor"]


@click.command(short_help="Check the installation and named servers, and show remedies.")
@options.sources(required=False)
@options.engine
@options.delegate
@options.as_json
def doctor(sources: tuple[str, ...], engine: "Engine", delegate: tuple[str, ...], as_json: bool) -> int:
    """Show what is installed and configured here, whether each named server answers, and remedies for problems.

    The exit status is 3 when a named server does not answer, otherwise 1 when something here is wrong and must be
    repaired. Limits, such as a missing certificate, do not change it.

    \b
    Examples:
      coget doctor
      coget doctor ftp://a.example/x gsiftp://b.example/x
    """
    from coalloc import api
    from coalloc.cli.checkup import checkup

    findings = checkup()
    probes = interrupts.run(api.probe(sources, engine, frozenset(delegate))) if sources else []
    if as_json:
        say_json(_document(findings, probes))
    else:
        _print(findings, probes)
    if not all(probe.ok for probe in probes):
        return NothingToFetchFrom.status
    return CoallocError.status if any(finding.state == "wrong" for finding in findings) else 0


def _document(findings: "Sequence[Finding]", probes: "Sequence[Probe]") -> dict[str, Any]:
    from coalloc.display.json import error_document
    from coalloc.safe_text import redact

    return {
        "findings": [asdict(finding) for finding in findings],
        "servers": [
            {
                "url": redact(probe.url),
                "ok": probe.ok,
                "seconds": probe.seconds,
                "size": probe.size,
                "features": list(probe.features),
                "error": error_document(probe.error) if probe.error else None,
            }
            for probe in probes
        ],
    }


def _print(findings: "Sequence[Finding]", probes: "Sequence[Probe]") -> None:
    from coalloc.display.table import ReportPrinter, table
    from coalloc.util import human

    out = ReportPrinter(sys.stdout)
    out.print(table(("here", "state", ""), [(f.thing, f.state, human.one_line(f.detail)) for f in findings]))
    names = human.labels([probe.url for probe in probes])
    if probes:
        out.print()
        out.print(table(("server", "state", ""), map(_row, names, probes)))
    remedies = [(f.thing, f.remedy) for f in findings if f.remedy]
    remedies += [(name, p.error.remedy) for name, p in zip(names, probes, strict=True) if p.error]
    if remedies:
        out.print()
        out.print(table(("to do", ""), [(thing, human.one_line(remedy)) for thing, remedy in remedies]))


def _row(name: str, probe: "Probe") -> tuple[str, str, str]:
    from coalloc.util import human

    if probe.error:
        return name, "wrong", human.about(name, probe.url, probe.error.message)
    size = "size unknown" if probe.size is None else human.size(probe.size)
    features = f"; {' '.join(probe.features)}" if probe.features else ""
    return name, "ok", human.one_line(f"{size}, answered in {human.duration(probe.seconds)}{features}")
