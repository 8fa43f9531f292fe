"""The command `coget-broker ignored`: subjects whose reports are ignored."""

from datetime import UTC, datetime

import click
from pydantic import TypeAdapter

from broker.cli.shared import database_option, with_services
from broker.config.settings import Settings
from broker.models.callers import Subject
from coalloc.util.streams import say

__all__ = ["ignored"]


@click.group(short_help="Ignore the reports of single subjects.")
def ignored() -> None:
    """Ignore the reports of a subject, list such subjects, and stop ignoring them.

    Forecasts and the order and states of replicas are then computed without these reports, which stay in the database.
    """


@ignored.command("add")
@database_option
@click.argument("subject")
def add(database: str, subject: str) -> None:
    """Ignore the reports of SUBJECT."""
    named = TypeAdapter(Subject).validate_python(subject)
    with_services(Settings(database), lambda broker: broker.bad_replica_reports.ignore("coget-broker", named))


@ignored.command("list")
@database_option
def listed(database: str) -> None:
    """List the subjects whose reports are ignored."""
    for each in with_services(Settings(database), lambda broker: broker.bad_replica_reports.ignored_subjects()):
        say(f"{datetime.fromtimestamp(each.at, UTC):%Y-%m-%d %H:%M}  {each.subject}  by {each.by}")


@ignored.command("remove")
@database_option
@click.argument("subject")
def remove(database: str, subject: str) -> None:
    """Stop ignoring the reports of SUBJECT."""
    with_services(Settings(database), lambda broker: broker.bad_replica_reports.stop_ignoring("coget-broker", subject))
