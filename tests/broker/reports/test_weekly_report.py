"""Weekly reports, once each by mail and as a file: to a real mail server and to a directory."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from hypothesis import given
from hypothesis import strategies as st

from broker.config.settings import Settings, configured
from broker.config.weekly_report import Mail, Posting
from broker.errors import Invalid
from broker.jobs.weekly_report import Poster, week_before
from broker.reports.registry import REPORTS, Period, ReportKind, query_of
from tests.broker.conftest import running
from tests.support.gsi import Authority
from tests.support.waiting import PATIENCE

MONDAY = datetime(2026, 11, 16, tzinfo=UTC).timestamp()
DAY = 86_400.0
WEEK = 7 * DAY


class Office:
    """A mail server that stores the accepted mails; it refuses the first few."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.taken: list[EmailMessage] = []
        self.users: list[bytes] = []
        self.port = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.refuses:
            self.refuses -= 1
            return "451 come back later"
        message = message_from_bytes(envelope.content or b"", policy=policy.default)  # type: ignore[arg-type]
        assert isinstance(message, EmailMessage)
        assert [address.addr_spec for address in message["To"].addresses] == envelope.rcpt_tos
        self.taken.append(message)
        return "250 taken"

    def login(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.users.append(data.login)
        return AuthResult(success=data.password == b"secret")


@asynccontextmanager
async def opened(office: Office, **settings: Any) -> AsyncIterator[Office]:
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(office, **settings), "127.0.0.1", 0)
    async with server:
        office.port = server.sockets[0].getsockname()[1]
        yield office


def mail(office: Office, **more: Any) -> Mail:
    settings = {"to": ("ann@example.org", "bob@example.org"), "sender": "coget@example.org", "host": "127.0.0.1"}
    return Mail(**{**settings, "port": office.port, "starttls": False, "user": "", "password": "", **more})


def files(folder: Path) -> list[str]:
    """Return the complete files."""
    return [file.name for file in folder.glob("[!.]*.html")]


@asynccontextmanager
async def poster(database: str, posting: Posting) -> AsyncIterator[Poster]:
    async with running(Settings(database)) as broker:
        await broker.client("admin")  # which the audit log tells of
        yield Poster(broker.factory.database, broker.factory.archive, posting, broker.factory.drawing)


async def test_the_week_that_is_over_comes_by_mail_once(database):
    async with opened(Office()) as office:
        async with poster(database, Posting(None, mail(office))) as first:
            assert await first.post(MONDAY + DAY)
            assert not await first.post(MONDAY + 2 * DAY)
        async with poster(database, Posting(None, mail(office))) as restarted:
            assert not await restarted.post(MONDAY + 6 * DAY)
            assert await restarted.post(MONDAY + 8 * DAY)
    message, later = office.taken
    assert (message["Subject"], message["From"]) == ("Week 2026-W46 at localhost", "coget@example.org")
    assert message["To"] == "ann@example.org, bob@example.org"
    assert later["Subject"] == "Week 2026-W47 at localhost"
    (attached,) = message.iter_attachments()
    assert (attached.get_content_type(), attached.get_filename()) == ("text/html", "coget-2026-W46.html")
    page = attached.get_content()
    period = "From 2026-11-09 00:00 UTC to 2026-11-16 00:00 UTC."
    assert period in page
    assert "Audit log" in page
    body = message.get_body()
    assert body is not None
    text = body.get_content()
    assert "The attached file coget-2026-W46.html has the whole report." in text
    assert f"{period} These reports show the present instead: Overview, Sources and sinks," in text


async def test_it_is_a_file_in_a_directory(database, tmp_path: Path):
    async with poster(database, Posting(tmp_path / "new" / "reports", None)) as posting:
        assert await posting.post(MONDAY + DAY)
    (file,) = (tmp_path / "new" / "reports").iterdir()
    assert file.name == "coget-2026-W46.html"
    assert "Audit log" in file.read_text()


async def test_a_late_report_has_the_data_of_the_week_in_its_title(database, tmp_path: Path):
    begin = week_before(time.time()) - 2 * WEEK
    moments = {"before": -5 * DAY, "first": 1.0, "last": WEEK - 1, "after": WEEK + 4 * DAY}
    source = {
        "source": "ftp://a.example",
        "url": "ftp://a.example/x",
        "bytes": 1000,
        "outcome": "ok",
        "seconds": 9.0,
        "start_seconds": 1.0,
        "flow_seconds": 8.0,
    }
    decisions = [
        {
            "id": name,
            "at": begin + at,
            "kind": "download",
            "thing": f"thing-{name}",
            "sink": "B",
            "strategy": "adaptive",
            "bytes": 1000,
            "moved": 1000,
            "outcome": "ok",
            "seconds": 10.0,
            "fetch_seconds": 9.0,
            "sources": [source],
        }
        for name, at in moments.items()
    ]
    async with running(Settings(database)) as broker:
        answer = await (await broker.client("admin")).post("/broker/v1/decisions", json=decisions)
        assert answer.status_code == 200, answer.text
        archive, drawing = broker.factory.archive, broker.factory.drawing
        late = Poster(broker.factory.database, archive, Posting(tmp_path, None), drawing)
        assert await late.post(begin + WEEK + 5 * DAY)
    page = (tmp_path / f"coget-{datetime.fromtimestamp(begin, UTC):%G-W%V}.html").read_text()
    assert {name for name in moments if f"thing-{name}" in page} == {"first", "last"}


async def test_one_of_many_processes_posts(database):
    async with opened(Office()) as office, poster(database, Posting(None, mail(office))) as one:
        others = [Poster(one._database, one._archive, one._posting, one._drawing) for _ in range(5)]
        posted = await asyncio.gather(*(each.post(MONDAY + DAY) for each in (one, *others)))
    assert sorted(posted) == [False] * 5 + [True]
    assert len(office.taken) == 1


async def test_a_refused_mail_is_sent_again(database):
    async with opened(Office(refuses=1)) as office, poster(database, Posting(None, mail(office))) as posting:
        with pytest.raises(OSError, match="come back later"):
            await posting.post(MONDAY + DAY)
        assert not await posting.post(MONDAY + DAY + 10)
        assert await posting.post(MONDAY + DAY + 700)
        assert not await posting.post(MONDAY + DAY + 1400)
    assert len(office.taken) == 1


async def test_a_server_that_is_not_there_stops_nothing(database, tmp_path: Path):
    async with opened(Office()) as office:
        gone = mail(office)
    async with poster(database, Posting(tmp_path, gone)) as posting:
        with pytest.raises(ConnectionRefusedError):
            await posting.post(MONDAY + DAY)
    assert files(tmp_path) == ["coget-2026-W46.html"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_the_server_is_authenticated_before_the_password_is_sent(database, tmp_path: Path, monkeypatch):
    authority = Authority(tmp_path)
    host = authority.host("localhost", names="DNS:localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(host.certificate, host.key)
    office = Office()
    secured = {"tls_context": context, "require_starttls": True, "authenticator": office.login, "auth_required": True}
    async with opened(office, **secured):
        secret = mail(office, host="localhost", starttls=True, user="coget", password="secret")
        async with poster(database, Posting(None, secret)) as posting:
            with pytest.raises(ssl.SSLCertVerificationError):
                await posting.post(MONDAY + DAY)
            assert office.users == []
            monkeypatch.setenv("SSL_CERT_FILE", str(authority.authority.certificate))
            assert await posting.post(MONDAY + DAY + 700)
    assert (office.users, len(office.taken)) == ([b"coget"], 1)


@pytest.mark.usefixtures("noon")
async def test_a_broker_posts_by_itself(database, tmp_path: Path):
    async with running(Settings(database, posting=Posting(tmp_path, None))):
        async with asyncio.timeout(PATIENCE):
            while not files(tmp_path):  # noqa: ASYNC110 - a directory changes
                await asyncio.sleep(0.02)
    assert files(tmp_path) == [f"coget-{datetime.fromtimestamp(week_before(time.time()), UTC):%G-W%V}.html"]


@pytest.mark.parametrize("kind", [kind for kind in REPORTS.values() if kind.listed], ids=lambda kind: kind.name)
def test_every_report_can_be_asked_for_a_week(kind: ReportKind):
    query_of(kind, {}, Period(MONDAY - WEEK), MONDAY)


@given(st.floats(1.6e9, 4e9))
def test_the_week_before_is_whole_and_over(now: float):
    begin = week_before(now)
    assert datetime.fromtimestamp(begin, UTC).strftime("%A %H:%M:%S") == "Monday 00:00:00"
    assert begin + WEEK <= now - 3600 < begin + 2 * WEEK


def test_a_week_is_over_when_its_last_hour_is_counted():
    assert week_before(MONDAY + 3599) == MONDAY - 2 * WEEK
    assert week_before(MONDAY + 3600) == MONDAY - WEEK


def configured_posting(tmp_path: Path, text: str) -> Posting | None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    return configured(Settings(), file).posting


def test_the_config_file_names_the_directory_and_the_mail_server(tmp_path: Path):
    assert configured_posting(tmp_path, "") is None
    assert configured_posting(tmp_path, '[report]\ndirectory = "weeks"') == Posting(tmp_path / "weeks", None)
    (tmp_path / "password").write_text("secret\n")
    text = (
        'to = ["ann@x.org"]\nsender = "coget@x.org"\nsmtp = "mail.x.org:25"\nuser = "coget"\npassword_file = "password"'
    )
    posting = configured_posting(tmp_path, f"[report]\n{text}")
    assert posting is not None
    assert posting.mail == Mail(("ann@x.org",), "coget@x.org", "mail.x.org", 25, True, "coget", "secret")
    plain = configured_posting(tmp_path, '[report]\nto = ["ann@x.org"]\nsender = "coget@x.org"\nsmtp = "localhost"')
    assert plain is not None
    assert plain.mail is not None
    assert (plain.mail.host, plain.mail.port, plain.mail.starttls) == ("localhost", 587, False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no destination"),
        ('to = ["ann@x.org"]', "sender"),
        ('to = ["ann"]\nsender = "c@x.org"\nsmtp = "x.org"', "ann is not an address"),
        ('to = ["a@x.org\\nBcc: b@x.org"]\nsender = "c@x.org"\nsmtp = "x.org"', "not an address"),
        ('to = []\nsender = "c@x.org"\nsmtp = "x.org"', "to has no address"),
        ('to = "a@x.org"\nsender = "c@x.org"\nsmtp = "x.org"', "to is not a list"),
        ('to = ["a@x.org"]\nsender = "c@x.org"\nsmtp = "x.org:smtp"', "invalid literal"),
        ('to = ["a@x.org"]\nsender = "c@x.org"\nsmtp = "x.org"\nuser = "u"', "belong together"),
        ('to = ["a@x.org"]\nsender = "c@x.org"\nsmtp = "x.org"\nuser = "u"\npassword_file = "p"', "cannot read"),
        ('directory = "x"\ncolour = "red"', "colour"),
        ("directory = 3", "directory is not a string"),
    ],
)
def test_invalid_settings_are_named(tmp_path: Path, text: str, why: str):
    with pytest.raises(Invalid, match=why) as refused:
        configured_posting(tmp_path, f"[report]\n{text}")
    assert 'smtp = "' in refused.value.remedy


def test_a_password_is_never_sent_in_clear(tmp_path: Path):
    (tmp_path / "p").write_text("secret")
    text = 'to = ["a@x.org"]\nsender = "c@x.org"\nsmtp = "x.org"\nuser = "u"\npassword_file = "p"\nstarttls = false'
    with pytest.raises(Invalid, match="unencrypted"):
        configured_posting(tmp_path, f"[report]\n{text}")
