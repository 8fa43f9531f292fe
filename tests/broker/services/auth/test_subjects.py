"""Subjects: each is one user at every identity provider; old ones are migrated or locked."""

import string
from collections.abc import Callable
from typing import Any

import alembic.command
import pytest
import sqlalchemy as sa

from broker.errors import Invalid
from broker.models.identities import identity
from broker.models.subjects import BROKERS, LONGEST, Foreign, Usernames, refusal
from broker.schema import METADATA
from broker.storage import migration
from broker.storage.database import addressed
from broker.storage.migration import check, differences, upgrade
from broker.storage.subjects import SUBJECTS
from tests.support.filled import columns, fill, found, new_name

CMS, ATLAS, ALONE = "https://iam.example/realms/cms", "https://iam.example/realms/atlas", "https://alone.example/"
SUBS = [
    *("alice", "Alice", "a lice", "a_lice", "a%20lice", "a+lice", "alice@cern.ch", "alice@", "@alice", "al/ice"),
    *("\u00e4lice", "a\u0308lice", "\u0430lice", "alice ", " alice", "alice\n", "alice\0", "alice~", "%", "%25", "#"),
    *(
        "x" * 199,
        "x" * 200,
        "x" * 255,
        string.printable,
        "../alice",
        "anonymous",
        "broker",
        "alice@https://iam.example/",
    ),
]


def test_no_two_people_are_one_subject():
    issuers = [CMS, ATLAS, ALONE, "https://alone.example", "http://alone.example/", "https://alone.example:8443/"]
    issuers += [
        "https://ALONE.example/",
        "https://alone.example/%41",
        "https://alone.example/A",
        "https://alone.example/~a",
    ]
    everybody = [Foreign.of(sub, issuer) for sub in SUBS for issuer in issuers]
    subjects = [str(each) for each in everybody]
    assert len(set(subjects)) == len(everybody)
    assert [Foreign.read(each) for each in subjects] == everybody
    assert max(map(len, subjects)) <= LONGEST
    assert {each.count("@") for each in subjects} == {1}
    assert not {refusal(each) for each in subjects} & {None}


@pytest.mark.parametrize("sub", ["", None, 5, ["alice"], {"a": 1}, True, "x" * 256, "\u00e4" * 128, "a\ud800"])
def test_an_invalid_sub_is_refused_and_never_shortened(sub):
    with pytest.raises(ValueError, match="its sub"):
        Foreign.of(sub, CMS)


RESERVED = ["anonymous", "Anonymous", "BROKER", "broker", "coget-broker", "Coget-Broker", "broker.probes"]
FORMS = [
    "ann@https://iam.example/",
    "ann@HTTPS://iam.example/",
    "a@b@http://x",
    str(identity("ann")),
    identity("x").hex,
]


@pytest.mark.parametrize("subject", [*RESERVED, *FORMS, "a lice", "a%20lice", "", "x" * 201, "\u00e4"])
def test_reserved_subjects_are_refused(subject):
    assert refusal(subject)


def test_the_broker_keeps_what_it_does_under_reserved_names():
    from broker.jobs import probing
    from broker.reports import pair
    from broker.storage import probes, weekly_report_claims

    assert {pair.PROBER, weekly_report_claims.MARKS, probes.CLAIMS, probing.SUBJECT, "coget-broker"} == BROKERS


def test_user_names_are_one_persons_each():
    these = Usernames.among("broker.example", [CMS, ATLAS, ALONE, "https://broker.example/realm"])
    locals_ = [
        "ann",
        "ann@x.example",
        "ann@broker.example",
        "ann@alone.example",
        "ann@iam.example",
        "ann@a@alone.example",
    ]
    subs = ["ann", "ann@broker.example", "a nn", "a_nn"]
    issuers = (CMS, ATLAS, ALONE, "https://broker.example/realm", "https://other.example/")
    subjects = locals_ + [str(Foreign.of(sub, issuer)) for sub in subs for issuer in issuers]
    names = [these.of(each) for each in subjects]
    assert len(set(names)) == len(names)
    assert [these.subjects(each) for each in names] == [(each,) for each in subjects]
    assert these.of(str(Foreign("ann", ALONE))) == "ann@alone.example"
    assert these.of(str(Foreign("ann", CMS))) == f"ann@{CMS}"


OTHER = """
action algorithm base cancel_message challenge checksum client_id code collection_id credential data_hosts
deadline_grade description destination details direction email endpoint_name error error_code error_side errors
file_class folder forecaster hash host host_id id issuer key kind label leader message name nonce opened operations
options outcome panel path paused permissions place prefix principal_type private queue ranges rationale reason
received redirect_uri request_id role route scheme scope scopes secret server set_aside sink site size_class source
sources state status stopped strategy submission_id successor task_id thing timer_id token transfer url value waits
was watcher worker
"""
"""Text columns without subjects."""


def test_each_column_that_has_subjects_is_known():
    """A new column fails here until the schema marks it or the set above names it."""
    tables = [table for table in METADATA.sorted_tables if table.name != "locks"]  # these columns are permanent
    texts = [each for table in tables for each in table.columns if isinstance(each.type, sa.Text)]
    unknown = {str(each) for each in texts if each not in SUBJECTS and each.name not in OTHER.split()}
    assert unknown == set()


def _old(url: str, make: Callable[[sa.Connection], Any]) -> str:
    """A database of the version before subjects had the whole issuer."""
    address = addressed(url)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0011")
        make(connection)
    return address


def _look(address: str, look: Callable[[sa.Connection], Any]) -> Any:
    engine = sa.create_engine(address.replace("+aiosqlite", ""))
    with engine.begin() as connection:
        found = look(connection)
    engine.dispose()
    return found


NAMERS = [
    (CMS, CMS),
    (ATLAS, ATLAS),
    (ALONE, ALONE),
    ("https://asked.example/i", None),
    ("https://known.example/i", "https://i/"),
]


def test_a_subject_is_moved_wherever_it_is(empty_database):
    old = "al+ice@alone.example"
    everywhere = _look(_old(empty_database, lambda connection: fill(connection, [old], "login")), columns)
    known = {
        new_name(f"{table.name}.{column.name}")
        for table in everywhere[0].table.metadata.sorted_tables
        for column in table.columns
    }
    marked = {str(each) for each in SUBJECTS} & known  # some were added later
    assert {new_name(str(each)) for each in everywhere} == marked
    there = {str(each) for each in everywhere} - {"clients.name"}  # client names do not look like an issuer's subjects
    address = addressed(empty_database)
    new = "al+ice@https://alone.example/"
    assert _look(address, lambda c: found(c, old)) == there
    assert not upgrade(address, NAMERS)
    differences(address)
    assert _look(address, lambda c: found(c, new)) == {new_name(each) for each in there}
    assert _look(address, lambda c: found(c, old)) == set()
    assert _look(address, lambda c: c.execute(sa.text("SELECT was FROM locks")).all()) == []


UNCLEAR = {
    "alice@iam.example": "several issuers",
    "a_lice@alone.example": "_",
    "alice@gone.example": "no issuer",
    "alice@asked.example": "introspection",
    "@alone.example": "empty",
    f"{'x' * 186}@alone.example": "cut",
    "anonymous": "reserved",
    "Broker": "reserved",
    str(identity("zoe")): "reserved",
    "alice@https://alone.example/": "reserved",
}
CLEAR = {
    "alice@alone.example": "alice@https://alone.example/",
    "alice@cern.ch@alone.example": "alice%40cern.ch@https://alone.example/",
    "alice@known.example": "alice@https://i/",
    "ann": "ann",
    "a_nn": "a_nn",
}


def test_ambiguous_subjects_are_locked(empty_database):
    every = [*UNCLEAR, *CLEAR]
    address = _old(empty_database, lambda c: fill(c, every, "login"))
    assert not upgrade(address, NAMERS)
    locks = dict(_look(address, lambda c: [tuple(row) for row in c.execute(sa.text("SELECT was, reason FROM locks"))]))
    assert locks.keys() == UNCLEAR.keys()
    assert {was: UNCLEAR[was] for was in locks if UNCLEAR[was] in locks[was]} == UNCLEAR
    asked = sa.text("SELECT subject, id FROM identities")
    ids = dict(_look(address, lambda c: [tuple(row) for row in c.execute(asked)]))
    for was, name in CLEAR.items():
        assert name in ids
        assert was == name or was not in ids


def test_a_token_that_an_admin_issued_makes_a_name_ours_or_unclear(empty_database):
    every = ["bob@alone.example", "bob@elsewhere.example", "bob"]
    address = _old(empty_database, lambda c: fill(c, every, "token"))
    assert not upgrade(address, NAMERS)
    rows = _look(address, lambda c: [tuple(row) for row in c.execute(sa.text("SELECT was, reason FROM locks"))])
    assert [(was, "an admin issued a token" in why) for was, why in rows] == [("bob@alone.example", True)]


@pytest.mark.parametrize("issued", [False, True])
def test_the_upgrade_requires_the_issuer_of_old_logins(empty_database, issued):
    kind = "token" if issued else "login"
    address = _old(empty_database, lambda c: fill(c, ["bob@elsewhere.example"], kind))
    if issued:
        assert not upgrade(address)
        return
    with pytest.raises(Invalid, match=r"bob@elsewhere\.example") as refused:
        upgrade(address)
    assert "--config FILE" in refused.value.remedy
    assert _look(address, lambda c: found(c, "bob@elsewhere.example"))
    with pytest.raises(Invalid, match="version 0011"):
        check(address)
    assert not upgrade(address, [])
