"""Logs of other programs, imported by a broker: each line is stored as it is, or named in the answer."""

import csv
import io
import itertools
import re
import time
from collections.abc import Iterator
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.models.callers import NewToken
from tests.support.effort import effort

T = "/broker/v1/transfers"
START = 1_700_000_000
HOSTILE = [
    "../../etc/passwd",
    "..",
    ".hidden",
    "-rf",
    "a b",
    " CERN",
    "CERN ",
    "CERN/../FNAL",
    "<script>",
    "'; DROP TABLE pairs; --",
    "C\u0415RN",  # the second letter is Cyrillic
    "CERN\u202e",
    "CERN\x00",
    "CERN\x1b[2J",
    "C" * 65,
    "C" * 10_000,
    "ftp://",
    "ftp://a:0",
    "ftp://a:99999",
    "ftp://a[b]",
    "\u212aelvin",
]
GRIDFTP = (
    "DATE=20261121214512.3 HOST={host} PROG=globus-gridftp-server NL.EVNT=FTP_INFO START=20261121214510.1 "
    "USER=u FILE=/x BUFFER=0 BLOCK=262144 NBYTES=104857600 VOLUME={volume} STREAMS={streams} STRIPES=1 "
    "DEST=[{client}] TYPE={kind} CODE=226\n"
)


def table(*rows: dict[str, object]) -> bytes:
    """Return a table of transfers, one per line from line 2 on, with the columns of the first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ["source", "sink", "start", "bytes", "seconds", *_more(rows)])
    writer.writeheader()
    for i, row in enumerate(rows):
        writer.writerow({"source": "ftp://a.example", "start": START + i, "bytes": 5_000_000, "seconds": 1} | row)
    return text.getvalue().encode()


def _more(rows: tuple[dict[str, object], ...]) -> Iterator[str]:
    known = ("source", "sink", "start", "bytes", "seconds")
    return (name for name in dict.fromkeys(name for row in rows for name in row) if name not in known)


async def imported(client, log: bytes) -> dict:
    answer = await client.post(f"{T}/import", content=log)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def kept(client) -> list[dict]:
    return (await client.get(T, params={"limit": 1000})).json()["transfers"]


async def test_no_hostile_sink_becomes_another_one(admin):
    taken = await imported(admin, table(*({"sink": sink} for sink in HOSTILE), {"sink": "CERN"}))
    assert (taken["accepted"], taken["lines_refused"], taken["changed"]) == (1, len(HOSTILE), [])
    assert [each["line"] for each in taken["refused"]] == list(range(2, 2 + len(HOSTILE)))
    assert all(each["why"].startswith("sink: ") and each["why"].isprintable() for each in taken["refused"])
    assert [each["sink"] for each in await kept(admin)] == ["CERN"]


async def test_hostile_sources_are_refused_with_their_lines(admin):
    hostile = [each for each in HOSTILE if each not in ("..", ".hidden")]
    taken = await imported(admin, table(*({"source": source} for source in ["", "..", ".hidden", "a/b", *hostile])))
    few = [each["line"] for each in taken["refused"]]
    bare = [2 + i for i, name in enumerate(["", "..", ".hidden", "a/b", *hostile]) if name == "C" * 65]
    assert taken["lines_refused"] == len(hostile) + 4 - len(bare)
    assert few == [line for line in range(2, 6 + len(hostile)) if line not in bare]
    assert [(each["line"], each["now"]) for each in taken["changed"]] == [(bare[0], f"gsiftp://{'c' * 65}")]


async def test_a_server_stored_in_another_form_is_reported(stocked):
    forms = {
        "FTP://Ann:secret@Cern-1.Example:21/data/x?key=secret": "ftp://cern-1.example",
        "dtn.example:2812": "gsiftp://dtn.example:2812",
        "https://fnal-1.example:443": "https://fnal-1.example",
        "https://plain.example": None,
    }
    sinks = ["ftp://cern-1.example", "FNAL", "gsiftp://Other.example:2811", ""]
    rows = [{"source": source, "sink": sink} for source, sink in zip(forms, sinks, strict=True)]
    taken = await imported(stocked, table(*rows))
    assert (taken["accepted"], taken["lines_changed"], taken["refused"]) == (4, 3, [])
    changes = {(each["line"], each["field"]): each["now"] for each in taken["changed"]}
    assert changes == {
        (2, "source"): "ftp://cern-1.example",
        (2, "sink"): "CERN",
        (3, "source"): "gsiftp://dtn.example:2812",
        (4, "source"): "https://fnal-1.example",
        (4, "sink"): "gsiftp://other.example",
    }
    assert "secret" not in str(taken)


async def test_a_gridftp_log_is_kept_as_it_is(admin):
    """IPv6 clients, volumes and lines that cannot be stored, by line number; blank lines and listings in between."""
    good = {"host": "dtn.example.org", "volume": "/", "streams": 4, "client": "192.0.2.7", "kind": "RETR"}
    lines = [
        good,
        good | {"client": "2001:db8::7"},
        good | {"volume": "/data/tape"},
        "\n",
        good | {"kind": "NLST"},
        good | {"host": "a b"},
        good | {"host": "DTN.example.org"},
        good | {"volume": "a b"},
        good | {"streams": 0},
    ]
    taken = await imported(admin, "".join(x if isinstance(x, str) else GRIDFTP.format(**x) for x in lines).encode())
    assert (taken["accepted"], taken["lines_left_out"]) == (5, 1)
    assert [each["line"] for each in taken["refused"]] == [6, 8]
    assert [tuple(each.values()) for each in taken["changed"]] == [
        (7, "source", "gsiftp://DTN.example.org", "gsiftp://dtn.example.org"),
        (9, "streams", "0", "1"),
    ]
    rows = await kept(admin)
    assert {each["sink"] for each in rows} == {"192.0.2.7", "2001:db8::7"}
    assert {each["file_class"] for each in rows} == {"", "/data/tape"}
    assert {each["source"] for each in rows} == {"gsiftp://dtn.example.org"}
    (by_ipv6,) = (await admin.get(T, params={"sink": "2001:db8::7"})).json()["transfers"]
    assert by_ipv6["bytes"] == 104_857_600


async def test_no_cell_of_a_table_is_shifted_dropped_or_rounded(admin):
    log = (
        b"\n"
        b"source,sink,start,bytes,seconds,busy_seconds,ranges,comment\n"
        b"ftp://a,CERN,1700000000,9007199254740993,2000,1000,3,x\n"
        b"\n"
        b"ftp://a,CERN,FNAL,1700000000,5,2,1,3,x\n"
        b"ftp://a,CERN,1700000000,5.5,2,1,3,x\n"
        b'ftp://a,"CE\nRN",1700000000,5,2,1,3,x\n'
        b"ftp://a,CERN,1700000000\n"
    )
    taken = await imported(admin, log)
    assert [each["line"] for each in taken["refused"]] == [5, 6, 7, 9]
    assert taken["changed"] == [{"line": 2, "field": "column", "was": "comment", "now": ""}]
    (row,) = await kept(admin)
    assert (row["bytes"], row["busy_seconds"], row["ranges"]) == (9007199254740993, 1000.0, 3)
    answer = await admin.post(f"{T}/import", content=b"source,start,bytes,seconds,source\nftp://a,1,5,1,ftp://b\n")
    assert (answer.status_code, "duplicate column" in answer.text) == (422, True)


async def test_times_changed_because_of_a_clock_ahead_are_reported(admin):
    taken = await imported(admin, table({"start": time.time() + 600}, {"start": time.time() + 86_400}))
    assert (taken["accepted"], [each["line"] for each in taken["refused"]]) == (1, [3])
    assert {(each["line"], each["field"]) for each in taken["changed"]} == {(2, "started"), (2, "ended")}


async def test_the_first_of_very_many_lines_are_listed_and_all_are_counted(admin):
    taken = await imported(
        admin, table(*({"sink": "a b"} for _ in range(1000)), *({"source": "h"} for _ in range(700)))
    )
    assert (taken["accepted"], taken["lines_refused"], taken["lines_changed"]) == (700, 1000, 700)
    assert [each["line"] for each in taken["refused"]] == list(range(2, 102))
    assert [each["line"] for each in taken["changed"]] == list(range(1002, 1102))


NAMES = st.one_of(
    st.sampled_from([*HOSTILE, "CERN", "cern-1", "ftp://cern-1.example", "FTP://A:21/b", "2001:db8::7", "h", "h:1"]),
    st.text(max_size=20),
    st.text("abAB.:/[]@%-_09 \\\x7f", max_size=20),
    st.builds("ftp://{}".format, st.text("abAB.:[]@-_09/\u212a\uff0e", max_size=12)),
    st.from_regex(r"[A-Za-z0-9_.-]{1,70}", fullmatch=True),
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"source": NAMES, "sink": NAMES},
        optional={
            "file_class": NAMES,
            "bytes": st.one_of(st.integers(-1, 2**65), st.floats(), st.text("0123456789.e+_ \uff11", max_size=20)),
            "streams": st.one_of(st.integers(-1, 2**33), st.just("")),
            "seconds": st.one_of(st.floats(), st.integers(0, 10**6)),
            "direction": st.sampled_from(["read", "write", "READ", ""]),
        },
    ),
    max_size=12,
)


REPORTERS = itertools.count()


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@settings(max_examples=effort(25, 2000), deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ROWS)
async def test_every_line_is_kept_as_it_is_or_named(broker, rows):
    """All content is possible; each reporter is new, so that the broker knows nothing before."""
    name = f"reporter-{next(REPORTERS)}"
    issued = await broker.factory.tokens.issue("tests", NewToken(subject=name, role="admin"))
    reporter = broker.with_headers({"Authorization": f"Bearer {issued.token}"})
    answer = await reporter.post(f"{T}/import", content=table(*rows))
    taken = answer.json()
    assert answer.status_code == 200, answer.text
    refused = {each["line"] for each in taken["refused"]}
    assert (taken["known"], taken["lines_left_out"]) == (0, 0)
    assert taken["accepted"] + taken["lines_refused"] == len(rows)
    changed = {(each["line"], each["field"]): each["now"] for each in taken["changed"]}
    stored = (await reporter.get(T, params={"limit": 1000, "subject": name})).json()["transfers"]
    assert len(stored) == taken["accepted"]
    lengths = [len(io.StringIO(table(*rows[:i]).decode(), newline="").readlines()) for i in range(len(rows) + 1)]
    begin = [1 + length for length in lengths]  # a name may have line ends in it
    found = {int(each["started"]) - START: each for each in stored}
    assert {begin[i] for i in found} | refused == set(begin[:-1])
    for i, now in found.items():
        row, line = rows[i], begin[i]
        for field in ("source", "sink", "file_class", "direction", "streams"):
            if row.get(field, "") != "":
                assert changed.get((line, field), str(row[field])) == str(now[field])
        if "bytes" in row:
            assert changed.get((line, "bytes")) or Decimal(str(row["bytes"])) == now["bytes"]


LINES = st.lists(
    st.fixed_dictionaries(
        {"host": NAMES, "client": NAMES, "volume": NAMES},
        optional={"kind": st.sampled_from(["RETR", "STOR", "NLST", "x"]), "streams": st.integers(-1, 2**33)},
    ),
    max_size=8,
)


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@settings(max_examples=effort(15, 1000), deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=LINES)
async def test_every_line_of_a_servers_log_is_kept_as_it_is_or_named(broker, rows):
    """Bytes distinguish the names; names contain nothing that ends lines or starts fields."""
    name = f"reporter-{next(REPORTERS)}"
    issued = await broker.factory.tokens.issue("tests", NewToken(subject=name, role="admin"))
    reporter = broker.with_headers({"Authorization": f"Bearer {issued.token}"})
    plain = {"kind": "RETR", "streams": 1}
    rows = [plain | {key: _flat(value) for key, value in row.items()} for row in rows]
    numbered = [
        GRIDFTP.format(**row).replace("NBYTES=104857600", f"NBYTES={10_000_000 + i}") for i, row in enumerate(rows)
    ]
    log = "".join(["DATE=nonsense\n", *numbered])
    taken = await imported(reporter, log.encode(errors="surrogatepass"))
    assert taken["accepted"] + taken["lines_refused"] + taken["lines_left_out"] == 1 + len(rows)
    refused = {each["line"] for each in taken["refused"]}
    changed = {(each["line"], each["field"]): (each["was"], each["now"]) for each in taken["changed"]}
    stored = (await reporter.get(T, params={"limit": 1000, "subject": name})).json()["transfers"]
    assert len(stored) == taken["accepted"]
    for now in stored:
        i = now["bytes"] - 10_000_000
        row, line = rows[i], i + 2
        assert line not in refused
        ends = (row["host"], row["client"]) if row["kind"] == "RETR" else (row["client"], row["host"])
        server = f"gsiftp://[{ends[0]}]" if ":" in ends[0] else f"gsiftp://{ends[0]}"
        expected = {
            "source": server,
            "sink": ends[1],
            "file_class": row["volume"] if row["volume"] != "/" else "",
            "streams": str(row["streams"]),
        }
        for field, meant in expected.items():
            assert changed.get((line, field), (None, meant))[1] == str(now[field]), (field, row)


def _flat(value: object) -> object:
    if not isinstance(value, str):
        return value
    return re.sub(r"[\r\n\s=]", "", value.encode(errors="ignore").decode())
