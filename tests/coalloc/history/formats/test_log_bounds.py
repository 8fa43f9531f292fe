"""Foreign logs: slow patterns, invalid numbers, and large lines."""

import csv
import re
import sqlite3
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.errors import UsageError
from coalloc.history.formats import gridftp, read_log
from tests.support.scripted import limited

READ = """
from pathlib import Path
from coalloc.history.formats import read_log
try:
    log = read_log(Path(sys.argv[1]))
    print(len(log.observations), len(log.refused))
except CoallocError as error:
    print_error(error)
"""
LONGEST = 65_000
HOSTILE = {
    "blanks": " " * LONGEST,
    "capitals": "A" * LONGEST,
    "capitals and dots": "A." * (LONGEST // 2),
    "words": " A" * (LONGEST // 2),
    "fields": " A=" * (LONGEST // 3),
    "blanks in a value": "x" + " x" * (LONGEST // 2),
    "runs of blanks": (" " * 300 + "A") * (LONGEST // 301),
}
FORMER = re.compile(r"([A-Z][A-Z.]*)=(.*?)(?=\s+[A-Z][A-Z.]*=|\s*$)")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hundred_long_lines_are_read_in_seconds(tmp_path, kind):
    """The quadratic expression took some seconds for each."""
    log = tmp_path / "transfer.log"
    log.write_text("".join(f"DATE=1 FILE={HOSTILE[kind]}\n" for _ in range(100)))
    assert await limited(READ, str(log), seconds=10) == "0 100\n"


@given(st.lists(st.tuples(st.sampled_from(["DATE", "FILE", "NL.EVNT"]), st.text("ab =/.0", max_size=10)), max_size=6))
def test_fields_are_what_they_were(pairs):
    line = " ".join(f"{name}={value}" for name, value in pairs)
    firsts = dict(reversed([(name, value.rstrip()) for name, value in FORMER.findall(line)]))
    assert gridftp._fields(line) == firsts


def test_no_name_of_a_file_is_taken_for_fields(tmp_path):
    """Users choose names: no name makes a transfer another server's, or larger, or a failure."""
    line = (
        "DATE=20261121224630.148815 HOST=dtn.example.org PROG=x NL.EVNT=FTP_INFO START=20261121224620.148815 USER=ann "
        "FILE=/d/{} BUFFER=0 BLOCK=262144 NBYTES=1000 VOLUME=/ STREAMS=4 STRIPES=1 DEST=[192.0.2.7] TYPE=RETR CODE=226"
    )
    forged = "x HOST=evil.example START=20200101000000 USER=eve NBYTES=9 STREAMS=9 DEST=[6.6.6.6] TYPE=STOR CODE=500"
    path = tmp_path / "log"
    path.write_text(f"{line.format('x')}\n{line.format(forged)}\n")
    plain, other = read_log(path).observations
    assert (plain.source, plain.sink, plain.bytes, plain.outcome) == (
        "gsiftp://dtn.example.org",
        "192.0.2.7",
        1000,
        "ok",
    )
    assert other == replace(plain, concurrency=1)


NUMBERS = ["9" * 5000, "1e999", "NaN", "inf", "-1", "", "x", "１e3"]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "log",
    [
        "start,end,bytes,streams\n1,{},5,1\n",
        "start,end,bytes,streams\n1,2,{},1\n",
        "start,seconds,bytes\n{},1,5\n",
        "start,seconds,bytes\n1\n",
        "instr,ftype,start,fsz,elap,ttype,fsid\na,b,{0},{0},{0},1,1\n",
        "series,t,mbps\na,1,1\na,{0},{0}\n",
        "time_count,bits,bytes\n2020-01-01,1,{0}\n{0},1,{0}\n",
        "time_count,bits,bytes\n",
        "host=h, protocol=ftp, dl_speed={0}, last_updated={0}\n",
        "DATE=20260101000000 START=20260101000001 HOST=h DEST=[h] TYPE=RETR NBYTES={0} STREAMS={0}\n",
        "DATE={0} START={0}.{0} HOST=h DEST=[h] TYPE=RETR NBYTES=1\n",
    ],
)
def test_numbers_that_are_none_refuse_their_line(tmp_path, log, number):
    path = tmp_path / "log"
    path.write_text(log.format(number))
    for each in read_log(path).observations:
        assert each.bytes >= 0


def test_a_field_without_end_is_refused(tmp_path):
    path = tmp_path / "log"
    path.write_text("start,end,bytes\n" + '"' + "x\n" * csv.field_size_limit())
    with pytest.raises(UsageError):
        read_log(path)


async def test_a_computed_column_takes_no_memory(tmp_path):
    path = tmp_path / "log"
    with sqlite3.connect(path) as database:
        long = "hex(zeroblob(400000000))"
        database.execute(f"CREATE TABLE downloads (timestamp, host TEXT AS ({long}), transfer_time, transfer_size)")
        database.execute("INSERT INTO downloads VALUES ('2026-01-01', 1, 1)")
    database.close()
    output = await limited(READ, str(path))
    assert output.startswith("UsageError |")


def test_a_log_as_before_is_read(tmp_path):
    path = tmp_path / "log"
    path.write_text(f"start,end,bytes\n{time.time() - 10},{time.time()},1000\n")
    assert len(read_log(path).observations) == 1
