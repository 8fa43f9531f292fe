"""The weekly report: written to a file, mailed, or both, each Monday (UTC), for the week that has ended.

One process posts each week's report; if none runs on Monday, the first one that starts later. A failed attempt is
repeated until the next week. If a process dies between sending a report and recording it, the report is sent again.
"""

import asyncio
import smtplib
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path

import structlog

from broker.config.weekly_report import Mail, Posting
from broker.errors import BrokerError
from broker.reports.archive import Archive
from broker.reports.document import Report
from broker.reports.drawing import DRAWING
from broker.reports.files import page
from broker.reports.registry import PRESENT, Period, listed
from broker.reports.words import written
from broker.storage.database import Database, retried
from broker.storage.weekly_report_claims import Posted
from broker.subprocesses import SeparateProcess
from coalloc.safe_text import escaped

__all__ = ["Poster", "message", "week_before"]

DAY = 86_400.0
WEEK = 7 * DAY
MONDAY = 4 * DAY
"""The first Monday after the epoch."""
SETTLED = 3_600.0
"""Seconds to wait after the end of a week for late reports of its transfers."""
TAKEN = 600.0
"""Seconds for which one process reserves the posting of a week; also the pause before another attempt."""
SECONDS = 60.0
"""Timeout for the mail server."""
log = structlog.get_logger("broker.reports")


def week_before(now: float) -> float:
    """Return the start of the last complete week, in epoch seconds; a week is complete an hour after its end."""
    return (now - SETTLED - MONDAY) // WEEK * WEEK + MONDAY - WEEK


def message(mail: Mail, reports: Sequence[Report], title: str, lead: str, name: str, file: str) -> EmailMessage:
    """Return a mail with the reports' facts as text, and the whole file as an attachment.

    :param lead: introduction, in sentences
    """
    email = EmailMessage()
    email["Subject"], email["From"], email["To"] = title, mail.sender, ", ".join(mail.to)
    email["Date"], email["Message-ID"] = formatdate(), make_msgid(domain=mail.sender.partition("@")[2])
    begin = f"{title}. {lead}\n\nThe attached file {name} has the whole report."
    email.set_content("\n\n".join([begin, *filter(None, map(_facts, reports))]))
    email.add_attachment(file.encode(), maintype="text", subtype="html", filename=name)
    return email


def _facts(report: Report) -> str:
    lines = [f"  {escaped(each.label)}: {written(each.value, each.unit)}" for each in report.facts]
    return "\n".join([escaped(report.title), *lines]) if lines else ""


class Poster:
    """The process's poster of weekly reports.

    :param posting: directory and mail settings
    :param drawing: process that draws figures
    """

    def __init__(self, database: Database, archive: Archive, posting: Posting, drawing: SeparateProcess) -> None:
        self._database = database
        self._archive = archive
        self._posting = posting
        self._drawing = drawing

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            try:
                await self.post(time.time())
            except (BrokerError, OSError, smtplib.SMTPException) as error:
                log.warning("failed to post the weekly report; trying again", error=str(error))
            except Exception:  # otherwise an error would stop the loop silently
                log.exception("failed to post the weekly report; trying again")
            await asyncio.sleep(TAKEN)

    async def post(self, now: float) -> bool:
        """Post the report of the past week if no process has posted it or is posting it; return whether it was posted.

        :raises OSError: when the file cannot be written, or the mail server cannot be reached
        :raises smtplib.SMTPException: when the mail server does not accept the mail
        """
        begin = week_before(now)
        week = _called(begin)
        if not await self._take(week, now):
            return False
        period = Period(begin, begin + WEEK)
        reports = await listed(self._archive, period, now)
        lead = f"{period}. These reports show the present instead: {', '.join(PRESENT)}."
        title = f"Week {week} at {self._archive.settings.domain}"
        name, file = f"coget-{week}.html", await self._drawing.run(DRAWING, "", page, reports, title, lead)
        if self._posting.directory:
            await asyncio.to_thread(_write, self._posting.directory, name, file)
        if self._posting.mail:
            email = message(self._posting.mail, reports, title, lead, name, file)
            await asyncio.to_thread(_send, self._posting.mail, email)
        await self._keep(week, begin + 3 * WEEK)
        log.info("the weekly report is posted", week=week)
        return True

    @retried
    async def _take(self, week: str, now: float) -> bool:
        async with self._database.write() as connection:
            return await Posted(connection).take(week, now, now + TAKEN)

    @retried
    async def _keep(self, week: str, until: float) -> None:
        async with self._database.write() as connection:
            await Posted(connection).keep(week, until)


def _called(begin: float) -> str:
    """Return the ISO 8601 name of a week, such as 2026-W47."""
    year, week, _ = datetime.fromtimestamp(begin, UTC).isocalendar()
    return f"{year}-W{week:02}"


def _write(directory: Path, name: str, file: str) -> None:
    """Write a file under a temporary name, and rename it when it is complete."""
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / f".{name}.part"
    part.write_text(file)
    part.replace(directory / name)


def _send(mail: Mail, email: EmailMessage) -> None:
    with smtplib.SMTP(mail.host, mail.port, timeout=SECONDS) as server:
        if mail.starttls:
            server.starttls(context=ssl.create_default_context())
        if mail.user:
            server.login(mail.user, mail.password)
        if refused := server.send_message(email):
            log.warning("some recipients were refused", refused=sorted(refused))
