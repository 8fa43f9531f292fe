"""`coget doctor`: check this machine, and whether servers answer."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from coalloc.cli import interrupts, options
from coalloc.errors import CoallocError, NothingToFetchFrom, UsageError
from coalloc.util.streams import say_json

if TYPE_CHECKING:
    from coalloc.api import Engine, ServerCheck
    from coalloc.cli.doctor_checks import Finding
    from coalloc.depot.hop_checks import HopCheck

__all__ = ["doctor"]


@click.command(short_help="Check the installation and named servers, and show remedies.")
@options.sources(required=False)
@options.engine
@options.delegate
@options.via
@options.header
@options.as_json
@options.verbose
def doctor(
    sources: tuple[str, ...],
    engine: "Engine",
    delegate: tuple[str, ...],
    via: tuple[str, ...],
    headers: tuple[str, ...],
    as_json: bool,
) -> int:
    """Show what is installed and configured here, whether each named server answers, and remedies for problems.

    The exit status is 3 when a named server does not answer, otherwise 1 when something here is wrong and must be
    repaired. Limits, such as a missing certificate, do not change it. If a server has a route over depots, each hop is
    checked, too. For a web server, it is shown which credential it gets, and why others are not sent.

    \b
    Examples:
      coget doctor
      coget doctor ftp://a.example/x gsiftp://b.example/x
      coget doctor --via depot-a.example,depot-b.example ftp://a.example/x
    """
    from coalloc import api
    from coalloc.cli.doctor_checks import checkup
    from coalloc.credentials.given_headers import read_headers

    if via and not sources:
        raise UsageError("--via needs the URL of a server", "give a URL: coget doctor --via ROUTE URL")
    findings = checkup()
    routes = interrupts.run(api.check_routes(sources, via or None)) if sources else []
    shown = api.Credentials(read_headers(headers))
    asking = api.check_servers(sources, engine, frozenset(delegate), via or None, shown) if sources else None
    checks = interrupts.run(asking) if asking else []
    if as_json:
        say_json(_document(findings, checks, routes))
    else:
        _print(findings, checks, routes)
    if not all(check.ok for check in checks) or any(hop.error for hops in routes for hop in hops):
        return NothingToFetchFrom.status
    return CoallocError.status if any(finding.state == "wrong" for finding in findings) else 0


def _document(
    findings: "Sequence[Finding]", checks: "Sequence[ServerCheck]", routes: "Sequence[Sequence[HopCheck]]"
) -> dict[str, Any]:
    from coalloc.display.json import error_document
    from coalloc.safe_text import redact

    return {
        "findings": [asdict(finding) for finding in findings],
        "servers": [
            {
                "url": redact(check.url),
                "ok": check.ok,
                "seconds": check.seconds,
                "size": check.size,
                "features": list(check.features),
                "credential": check.credential,
                "error": error_document(check.error) if check.error else None,
            }
            for check in checks
        ],
        "routes": [[{**hop._asdict(), "place": str(hop.place)} for hop in hops] for hops in routes],
    }


def _print(
    findings: "Sequence[Finding]", checks: "Sequence[ServerCheck]", routes: "Sequence[Sequence[HopCheck]]"
) -> None:
    from coalloc.display.table import ReportPrinter, table
    from coalloc.util import human

    out = ReportPrinter(sys.stdout)
    out.print(table(("here", "state", ""), [(f.thing, f.state, human.one_line(f.detail)) for f in findings]))
    names = human.labels([check.url for check in checks])
    for hops in filter(None, routes):
        out.print()
        out.print(table(("hop", "state", ""), map(_hop_row, hops)))
    if checks:
        out.print()
        out.print(table(("server", "state", ""), map(_row, names, checks)))
    used = [(name, human.one_line(check.credential)) for name, check in zip(names, checks, strict=True)]
    if used := [row for row in used if row[1]]:
        out.print()
        out.print(table(("server", "credential"), used))
    remedies = [(f.thing, f.remedy) for f in findings if f.remedy]
    remedies += [(str(hop.place), hop.remedy) for hops in routes for hop in hops if hop.remedy]
    remedies += [(name, p.error.remedy) for name, p in zip(names, checks, strict=True) if p.error]
    if remedies:
        out.print()
        out.print(table(("to do", ""), [(thing, human.one_line(remedy)) for thing, remedy in remedies]))


def _hop_row(hop: "HopCheck") -> tuple[str, str, str]:
    from coalloc.util import human

    if hop.error:
        return str(hop.place), "wrong", human.one_line(hop.error)
    if not hop.reached:
        return str(hop.place), "unknown", "not reached"
    return str(hop.place), "ok", "" if hop.seconds is None else f"connected in {1000 * hop.seconds:.1f} ms"


def _row(name: str, check: "ServerCheck") -> tuple[str, str, str]:
    from coalloc.util import human

    if check.error:
        return name, "wrong", human.about(name, check.url, check.error.message)
    size = "size unknown" if check.size is None else human.size(check.size)
    features = f"; {' '.join(check.features)}" if check.features else ""
    return name, "ok", human.one_line(f"{size}, answered in {human.duration(check.seconds)}{features}")
