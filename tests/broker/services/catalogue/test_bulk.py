"""Import and export of other catalogues."""

import asyncio
import hashlib
import json
import subprocess
import zlib

import pytest

from broker.response_formats import METALINK
from broker.services.catalogue.formats import CatalogueEntry, Context, parser
from coalloc.resolve import metalink

IMPORT = "/broker/v1/import"
SHA = "ab" * 32


async def _import(client, content, **params) -> tuple[list[dict], dict]:
    answer = await client.post(IMPORT, params=params, content=content)
    assert answer.status_code == 200, answer.text
    *refused, end = [json.loads(line) for line in answer.text.splitlines()]
    assert end.pop("end")
    return refused, end


async def test_an_export_can_be_imported_again(stocked, broker):
    bad = {"dataset": "run1:2024/a.root", "endpoint": "cern-2", "reason": "gone"}
    await stocked.post("/broker/v1/replicas/bad", json=bad)
    exported = (await stocked.get("/broker/v1/export")).text
    await stocked.delete("/broker/v1/datasets/run1:2024/a.root")
    refused, counts = await _import(stocked, exported)
    assert (refused, counts) == ([], {"read": 1, "kept": 1, "changed": 3, "refused": 0})
    assert (await stocked.get("/broker/v1/export")).text == exported
    refused, counts = await _import(stocked, exported)  # again: nothing changes
    assert (refused, counts) == ([], {"read": 1, "kept": 1, "changed": 0, "refused": 0})


async def test_each_refused_line_has_an_error_and_a_remedy(stocked):
    lines = [
        '{"name": "ok:1", "size": 1}',
        "{",
        '{"name": "../etc/passwd"}',
        '{"name": "ok:2", "replicas": [{"endpoint": "nowhere"}]}',
        '{"name": "run1:2024/a.root", "size": 7}',
        '{"name": "ok:3", "replicas": [{"url": "ftp://unknown.example/x"}]}',
        "[1]",
        '{"name": "ok:4", "checksums": {"adler32": "xyz"}}',
        "",
        '{"name": "ok:5"}',
        '{"end": tr',
        '{"name": "ok:6", "replicas": [{"url": "ftp://[x/"}]}',
    ]
    refused, counts = await _import(stocked, "\n".join(lines))
    assert [each["line"] for each in refused] == [2, 3, 4, 5, 6, 7, 8, 11, 12]
    assert all(each["error"]["message"] and each["error"]["remedy"] for each in refused)
    assert counts == {"read": 11, "kept": 2, "changed": 0, "refused": 9}
    assert (await stocked.get("/broker/v1/datasets", params={"prefix": "ok:1"})).json()["datasets"]


async def test_a_line_that_is_no_text_is_refused_alone(stocked):
    refused, counts = await _import(stocked, b'{"name": "ok:1"}\n\xff\xfe\n{"name": "ok:2"}')
    assert ([each["line"] for each in refused], counts["kept"]) == ([2], 2)


async def test_a_csv_has_a_replica_a_line(stocked):
    table = (
        "name,size,adler32,url\n"
        "run2:x,10,00000001,ftp://cern-1.example/data/deep/x\n"
        "run2:x,10,00000001,https://fnal-1.example/store/x\n"
        'run2:y,20,00000002,"gsiftp://cern-2.example/with,comma"\n'
        "run2:z,20\n"
    )
    refused, counts = await _import(stocked, table, format="csv")
    assert ([each["line"] for each in refused], counts["changed"]) == ([5], 3)
    found = (await stocked.get("/broker/v1/datasets/run2:x")).json()
    assert {(replica["endpoint"], replica["path"]) for replica in found["replicas"]} == {
        ("cern-1", "deep/x"),
        ("fnal-1", None),
    }


async def test_rucios_stream_is_read(stocked):
    line = {
        "scope": "mc16",
        "name": "EVNT.01._001.pool.root",
        "bytes": 123,
        "adler32": "0a0b0c0d",
        "md5": None,
        "rses": {
            "cern-1": ["ftp://cern-1.example:21/data/mc16/ab/cd/EVNT.01._001.pool.root"],
            "fnal-1": ["https://fnal-1.example:443/store/EVNT.01._001.pool.root"],
        },
        "states": {"cern-1": "AVAILABLE", "fnal-1": "UNAVAILABLE"},
    }
    refused, counts = await _import(stocked, json.dumps(line), format="rucio")
    assert (refused, counts["changed"]) == ([], 2)
    found = (await stocked.get("/broker/v1/datasets/mc16:EVNT.01._001.pool.root")).json()
    assert (found["size"], found["checksums"]) == (123, {"adler32": "0a0b0c0d"})
    assert [(each["path"], each["state"]) for each in found["replicas"]] == [
        ("mc16/ab/cd/EVNT.01._001.pool.root", "AVAILABLE"),
        (None, "UNAVAILABLE"),
    ]


async def test_a_metalink_is_read_and_what_we_write_is_one(stocked):
    headers = {"Accept": METALINK}
    names = {"names": ["run1:2024/a.root"]}
    document = await stocked.post("/broker/v1/replicas/resolve", json=names, headers=headers)
    refused, counts = await _import(stocked, document.content, format="metalink", scope="copy")
    assert (refused, counts["changed"]) == ([], 3)
    found = (await stocked.get("/broker/v1/datasets/copy:2024/a.root")).json()
    assert {replica["path"] for replica in found["replicas"]} == {None}
    answer = await stocked.post(IMPORT, params={"format": "metalink"}, content=b"<html>")
    assert answer.status_code == 422
    assert metalink.read(document.content, "ours")


async def test_the_output_of_sha256sum_is_imported(stocked, tmp_path):
    folder = tmp_path / "files"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.dat", "sub/b.dat"):
        (folder / name).write_bytes(name.encode())
    words = ["sha256sum", "./a.dat", "sub/b.dat"]
    listed = (await asyncio.to_thread(subprocess.run, words, cwd=folder, check=True, stdout=subprocess.PIPE)).stdout
    refused, counts = await _import(stocked, listed, format="checksums", endpoint="cern-1", scope="lab")
    assert (refused, counts["changed"]) == ([], 2)
    found = (await stocked.get("/broker/v1/datasets/lab:sub/b.dat")).json()
    assert found["checksums"] == {"sha256": hashlib.sha256(b"sub/b.dat").hexdigest()}
    adler = f"{zlib.adler32(b'a.dat'):08x}  a.dat\n"
    await _import(stocked, adler, format="checksums", endpoint="cern-1", scope="lab")
    assert set((await stocked.get("/broker/v1/datasets/lab:a.dat")).json()["checksums"]) == {"adler32", "sha256"}


async def test_an_unknown_endpoint_or_format_is_refused_before_reading(stocked):
    answer = await stocked.post(IMPORT, params={"format": "checksums", "endpoint": "none"}, content=b"")
    assert answer.status_code == 404
    answer = await stocked.post(IMPORT, params={"format": "xls"}, content=b"")
    assert answer.status_code == 422
    answer = await stocked.post(IMPORT, content=b"x" * (2 << 20))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


async def test_many_lines_are_kept_in_parts_with_correct_line_numbers(stocked):
    lines = [json.dumps({"name": f"p:{i:05}" if i % 1000 else "bad name", "size": i}) for i in range(5000)]
    refused, counts = await _import(stocked, "\n".join(lines))
    assert [each["line"] for each in refused] == [1, 1001, 2001, 3001, 4001]
    assert counts == {"read": 5000, "kept": 4995, "changed": 0, "refused": 5}
    exported = (await stocked.get("/broker/v1/export", params={"prefix": "p:"})).text.splitlines()
    assert json.loads(exported[-1]) == {"end": True, "count": 4995}


@pytest.mark.parametrize("line", ["", "   ", "\t"])
def test_an_empty_line_is_skipped(line):
    assert parser("ndjson", Context({}))(line) is None


def test_the_length_of_a_checksum_determines_its_algorithm():
    read = parser("checksums", Context({}))
    for digits, algorithm in ((8, "adler32"), (32, "md5"), (40, "sha1"), (64, "sha256"), (128, "sha512")):
        entry = read(f"{'a' * digits}  x/y")
        assert isinstance(entry, CatalogueEntry)
        assert entry.dataset.checksums == {algorithm: "a" * digits}
