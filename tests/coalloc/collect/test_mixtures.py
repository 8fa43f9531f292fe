"""Files that change while they are collected, and replicas that differ: no collected file is a mixture of two."""

import os
from contextlib import ExitStack
from hashlib import sha256

import pytest

from coalloc import api
from coalloc.collect.runtime.carrier import Carrier
from coalloc.collect.runtime.finishing import Finisher
from coalloc.errors import CoallocError, FilesFailed, ReplicaChanged, SourceError, TransferRefused, VerificationError
from tests.support.gridftp import GridFTPServer
from tests.support.vsftpd import Vsftpd

SIZE, RATE = 3_000_000, 1_000_000
SILENT = ("-disable-command-list", "CKSM")
"""Options of a server without checksums."""
OLD, NEW = 1e9, 1.1e9


@pytest.fixture(autouse=True)
def history(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a server."""
    with ExitStack() as stack:

        def start(name, host, options=SILENT):
            return stack.enter_context(GridFTPServer(tmp_path / name, host, options=options))

        yield start


@pytest.fixture
def silent(start):
    """Two servers without checksums."""
    return start("a", "127.0.0.2"), start("b", "127.0.0.3")


def put(server, content, modified=OLD):
    """Put a file in the place of the one at a server, as `rename` does."""
    new = server.root / "new"
    new.write_bytes(content)
    os.utime(new, (modified, modified))
    new.rename(server.root / "x")


def metalink(path, *urls, hashes=""):
    path.write_text(
        f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="x"><size>{SIZE}</size>{hashes}'
        f"{''.join(f'<url>{url}</url>' for url in urls)}</file></metalink>"
    )
    return str(path)


def pieces(content, length=1 << 20):
    parts = (content[start : start + length] for start in range(0, SIZE, length))
    hashes = "".join(f"<hash>{sha256(part).hexdigest()}</hash>" for part in parts)
    return f'<pieces length="{length}" type="sha-256">{hashes}</pieces>'


async def collect(source, to, midway=None, results=None, **options):
    """Collect; call `midway` once after a third of the bytes."""
    waiting = [midway] if midway else []

    def watch(view):
        if waiting and view.done_bytes > SIZE / 3:
            waiting.pop()()

    options |= {"limit_rate": RATE} if midway and "://" not in str(to) else {}
    request = api.CollectRequest((source,), str(to), method="all-at-once", **options)
    report = await api.collect(request, watch=watch, results=results)
    assert not waiting
    return report


async def test_replicas_that_cannot_be_compared_are_not_mixed(silent, tmp_path):
    one, other = silent
    put(one, b"A" * SIZE)
    put(other, b"B" * SIZE)
    document = metalink(tmp_path / "x.meta4", one.url("x"), other.url("x"))
    results = api.Results()
    with pytest.raises(CoallocError):
        await collect(document, tmp_path / "out", one.kill, results)
    assert "no checksum" in results.unfinished.unused[other.url("x")]
    assert not (tmp_path / "out" / "x").exists()
    report = await collect(document, tmp_path / "out")
    assert report.there_bytes == 0
    assert [*report.unused] == [one.url("x")]
    assert (tmp_path / "out" / "x").read_bytes() == b"B" * SIZE


async def test_replicas_that_differ_in_the_middle_are_compared_at_the_end(start, tmp_path):
    servers = one, other = start("a", "127.0.0.2", ()), start("b", "127.0.0.3", ())
    contents = [b"A" * (SIZE // 2) + letter * (SIZE // 2) for letter in (b"A", b"B")]
    for server, content in zip(servers, contents, strict=True):
        put(server, content)
    document = metalink(tmp_path / "x.meta4", one.url("x"), other.url("x"))
    report = await collect(document, tmp_path / "out", one.kill)
    assert {pair.source for pair in report.pairs if pair.bytes} == {f"ftp://{s.host}:{s.port}" for s in servers}
    assert (tmp_path / "out" / "x").read_bytes() == contents[1]


async def test_a_file_replaced_at_a_server_without_checksums_is_refused(silent, tmp_path):
    one, _ = silent
    put(one, b"A" * SIZE)
    with pytest.raises(ReplicaChanged, match="x changed at its origin"):
        await collect(one.url("x"), tmp_path / "out", lambda: put(one, b"B" * SIZE, NEW))
    assert not (tmp_path / "out" / "x").exists()
    put(one, b"C" * SIZE)  # with the date of the first version, as after the restore of a backup
    await collect(one.url("x"), tmp_path / "out")
    assert (tmp_path / "out" / "x").read_bytes() == b"C" * SIZE


async def test_a_file_replaced_while_it_is_copied_to_a_server_is_refused(silent, monkeypatch):
    one, other = silent
    put(one, b"A" * SIZE)
    begin = Carrier.begin

    def replaced(self, *hop):
        put(one, b"B" * SIZE, NEW)
        return begin(self, *hop)

    monkeypatch.setattr(Carrier, "begin", replaced)
    with pytest.raises(ReplicaChanged, match="x changed at its origin"):
        await collect(one.url("x"), other.url("out"))
    assert list((other.root / "out").iterdir()) == []


async def test_a_killed_server_that_delivered_bytes_is_not_believed(silent, tmp_path, monkeypatch):
    """All bytes are here, but their server can no longer say whether it has replaced the file meanwhile."""
    one, _ = silent
    put(one, b"A" * SIZE)
    see = Finisher._see_version

    async def killed(self, *what):
        one.kill()
        return await see(self, *what)

    monkeypatch.setattr(Finisher, "_see_version", killed)
    with pytest.raises(SourceError):
        await collect(one.url("x"), tmp_path / "out")
    assert not (tmp_path / "out" / "x").exists()


async def test_hashes_of_pieces_decide(start, tmp_path):
    server = start("a", "127.0.0.2", ())
    content = b"A" * SIZE
    put(server, content)
    wrong = metalink(tmp_path / "wrong.meta4", server.url("x"), hashes=pieces(content[:-1] + b"B"))
    right = metalink(tmp_path / "right.meta4", server.url("x"), hashes=pieces(content))
    for to, folder in ((tmp_path / "out", tmp_path / "out"), (server.url("out"), server.root / "out")):
        with pytest.raises(VerificationError):
            await collect(wrong, to)
        assert not (folder / "x").exists()
        outcomes = [(await collect(right, to)).files[0] for _ in range(2)]
        assert [(each.outcome, each.verified) for each in outcomes] == [("collected", True), ("there", True)]
        assert (folder / "x").read_bytes() == content
        with pytest.raises(CoallocError):
            await collect(wrong, to)
        assert (folder / "x").read_bytes() == content


async def test_hashes_of_pieces_show_that_replicas_are_the_same(silent, tmp_path):
    one, other = silent
    content = b"A" * SIZE
    put(one, content)
    put(other, content)
    document = metalink(tmp_path / "x.meta4", one.url("x"), other.url("x"), hashes=pieces(content))
    report = await collect(document, tmp_path / "out", one.kill)
    assert report.files[0].verified
    assert (tmp_path / "out" / "x").read_bytes() == content


async def test_hashes_of_pieces_choose_the_right_replica(silent, start, tmp_path):
    servers = *wrong, right = (*silent, start("c", "127.0.0.4"))
    for server in wrong:
        put(server, b"B" * SIZE)
    put(right, b"A" * SIZE)
    urls = [server.url("x") for server in servers]
    document = metalink(tmp_path / "x.meta4", *urls, hashes=pieces(b"A" * SIZE))
    await collect(document, tmp_path / "out")
    assert (tmp_path / "out" / "x").read_bytes() == b"A" * SIZE


async def test_hashes_of_pieces_that_the_destination_cannot_compute(silent, tmp_path):
    one, other = silent
    put(one, b"A" * SIZE)
    document = metalink(tmp_path / "x.meta4", one.url("x"), hashes=pieces(b"A" * SIZE))
    with pytest.raises((TransferRefused, VerificationError), match="cannot compute") as caught:
        await collect(document, other.url("out"))
    assert "this machine" in caught.value.remedy
    assert not (other.root / "out" / "x").exists()


async def test_an_ftp_server_that_lists_no_dates_is_asked_for_them(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    with Vsftpd(root, tmp_path / "run") as server:
        put(server, b"A" * SIZE)
        with pytest.raises(ReplicaChanged, match="x changed at its origin"):
            await collect(f"{server.url('')}/", tmp_path / "out", lambda: put(server, b"B" * SIZE, NEW))
        assert not (tmp_path / "out" / "x").exists()
        outcomes = [(await collect(f"{server.url('')}/", tmp_path / "out")).files[0].outcome for _ in range(2)]
        outcomes.append((await collect(server.url("x"), tmp_path / "out")).files[0].outcome)
    assert outcomes == ["collected", "there", "there"]
    assert (tmp_path / "out" / "x").read_bytes() == b"B" * SIZE


async def test_a_link_to_a_directory_that_an_ftp_server_lists_as_a_link_is_no_empty_file(tmp_path):
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "link").symlink_to("sub")
    with Vsftpd(root, tmp_path / "run") as server:
        put(server, b"content")
        with pytest.raises(FilesFailed, match="1 of 2 files failed"):
            await collect(f"{server.url('')}/", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["x"]


@pytest.mark.parametrize("wrong", [1, 2])
async def test_the_replica_with_the_expected_checksum_is_found(start, tmp_path, wrong):
    """Servers with another file of the same size come first, and compute checksums of it."""
    servers = [start(name, f"127.0.0.{number}", ()) for number, name in enumerate("abc"[: wrong + 1], 2)]
    right = os.urandom(SIZE)
    for server in servers:
        put(server, right if server is servers[-1] else os.urandom(SIZE))
    digest = f'<hash type="sha-256">{sha256(right).hexdigest()}</hash>'
    document = metalink(tmp_path / "x.meta4", *(server.url("x") for server in servers), hashes=digest)
    report = await api.collect(api.CollectRequest((document,), str(tmp_path / "out")))
    assert (tmp_path / "out" / "x").read_bytes() == right
    assert [file.verified for file in report.files] == [True]


async def test_no_replica_has_the_expected_checksum(start, tmp_path):
    servers = [start(name, f"127.0.0.{number}", ()) for number, name in enumerate("ab", 2)]
    for server in servers:
        put(server, os.urandom(SIZE))
    digest = f'<hash type="sha-256">{sha256(b"another").hexdigest()}</hash>'
    document = metalink(tmp_path / "x.meta4", *(server.url("x") for server in servers), hashes=digest)
    with pytest.raises(VerificationError, match="x "):
        await api.collect(api.CollectRequest((document,), str(tmp_path / "out")))
    assert not (tmp_path / "out" / "x").exists()
