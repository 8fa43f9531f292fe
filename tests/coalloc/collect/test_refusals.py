"""Servers that refuse some files, or a destination that does: only these files are missing, and links stay in use."""

from hashlib import sha256

import pytest

from coalloc import api
from coalloc.collect.methods import Method
from coalloc.collect.methods.events import Arrived, CollectStarted
from coalloc.collect.runtime.channels import ServerPair
from coalloc.errors import FilesFailed, SourceError, TransferRefused, Unsupported
from tests.coalloc.collect.test_collecting import better_over, found, label, leftovers
from tests.support.fetching import random_file

pytestmark = pytest.mark.usefixtures("history", "relay")


@pytest.fixture
def at_start(monkeypatch):
    """Return a list of functions that are called when the files are listed, and none is under way yet."""
    calls, handle = [], Method.handle

    def handled(self, event):
        if isinstance(event, CollectStarted):
            for call in calls:
                call()
        return handle(self, event)

    monkeypatch.setattr(Method, "handle", handled)
    return calls


@pytest.mark.sampled(2)
async def test_files_that_vanish_cost_neither_the_relay_nor_the_link(servers, sink, place, at_start):
    to, folder = place
    a, _, via = servers
    gone = [f"gone{number}" for number in range(20)]
    for name in gone:
        random_file(a.root / name, 100_000)
        at_start.append((a.root / name).unlink)
    content = {f"kept{number}": random_file(a.root / f"kept{number}", 3_000_000) for number in range(3)}
    urls = tuple(a.url(name) for name in (*gone, *content))
    results = api.Results()
    network = better_over(via, servers[:1], sink if "://" in to else None)
    with pytest.raises(FilesFailed, match=f"20 of 23 files failed:\n.*{label(a)}/.*gone"):
        await api.collect(api.CollectRequest(urls, to), network=network, results=results)
    assert found(folder) == content
    report = results.unfinished
    assert report.staged_bytes >= 5_000_000
    assert leftovers([*servers, sink]) == []


@pytest.mark.sampled(2)
async def test_another_holder_sends_what_the_first_one_refuses(servers, sink, place, at_start, tmp_path):
    to, folder = place
    a, b, via = servers
    data = {name: random_file(a.root / name, 2_000_000) for name in ("x", "y", "empty")}
    data["empty"] = b""
    for name, content in data.items():
        for server in (a, b):
            (server.root / name).write_bytes(content)
    files = "".join(
        f'<file name="{name}"><hash type="sha-256">{sha256(content).hexdigest()}</hash>'
        f"<url>{a.url(name)}</url><url>{b.url(name)}</url></file>"
        for name, content in data.items()
    )
    document = tmp_path / "all.meta4"
    document.write_text(f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{files}</metalink>')
    at_start += [(a.root / "x").unlink, (a.root / "empty").unlink]
    network = better_over(via, servers[:2], sink if "://" in to else None)
    report = await api.collect(api.CollectRequest((str(document),), to), network=network)
    assert found(folder) == data
    assert all(file.verified for file in report.files)
    assert leftovers([*servers, sink]) == []


@pytest.mark.sampled(2)
async def test_a_piece_that_vanishes_at_a_relay_is_sent_anew(servers, sink, place, monkeypatch):
    to, folder = place
    a, _, via = servers
    content = random_file(a.root / "x", 9_000_000)
    vanished, handle = [], Method.handle

    def handled(self, event):
        if isinstance(event, Arrived) and self.ledger.running[event.hop].sink == label(via) and not vanished:
            (staged,) = via.root.rglob(".coget-staging-*")
            vanished.extend(staged.iterdir())
            for piece in vanished:
                piece.unlink()
        return handle(self, event)

    monkeypatch.setattr(Method, "handle", handled)
    network = better_over(via, servers[:1], sink if "://" in to else None)
    report = await api.collect(api.CollectRequest((a.url("x"),), to), network=network)
    assert vanished
    assert found(folder) == {"x": content}
    assert report.staged_bytes > 5_000_000
    assert leftovers([*servers, sink]) == []


@pytest.mark.parametrize("method", ["adaptive", "one-by-one"])
async def test_a_destination_that_refuses_a_file_gets_the_others(servers, sink, method):
    a = servers[0]
    (a.root / "run" / "taken").mkdir(parents=True)
    content = {name: random_file(a.root / "run" / name, 300_000) for name in ("x", "y", "taken/z")}
    (sink.root / "out").mkdir()
    (sink.root / "out" / "taken").write_bytes(b"a file")
    with pytest.raises(FilesFailed, match=f"1 of 3 files failed:\n.*{label(sink)}/.*taken"):
        await api.collect(api.CollectRequest((f"{a.url('run')}/",), sink.url("out"), method=method))
    assert found(sink.root / "out") == {"x": content["x"], "y": content["y"], "taken": b"a file"}
    assert leftovers([*servers, sink]) == []


@pytest.mark.parametrize("method", ["adaptive", "one-by-one"])
async def test_servers_that_cannot_connect_to_each_other(servers, sink, method, monkeypatch):
    """Their files go over a relay; without one, the error is final, and says what to do."""
    a, _, via = servers
    content = {"x": random_file(a.root / "x", 300_000)}
    opened = ServerPair.open

    async def unless_direct(source, to, waits):
        if (source.label, to.label) == (label(a), label(sink)):
            raise Unsupported("the server has no MODE E", "download from it")
        return await opened(source, to, waits)

    monkeypatch.setattr(ServerPair, "open", unless_direct)
    with pytest.raises(TransferRefused, match="the server has no MODE E") as caught:
        await api.collect(api.CollectRequest((a.url("x"),), sink.url("out"), method=method))
    assert caught.value.remedy == "download from it"
    assert found(sink.root) == {}
    await api.collect(api.CollectRequest((a.url("x"),), sink.url("out"), (via.url("lent"),), method))
    assert found(sink.root / "out") == content


async def test_files_that_cannot_be_looked_up_cost_only_themselves(servers, sink, place):
    """A name that no file should have, a URL of no file, and a dead server: all other files arrive."""
    to, folder = place
    a, b, dead = servers
    (a.root / "run" / "deep").mkdir(parents=True)
    content = {name: random_file(a.root / "run" / name, 30_000) for name in ("x", "deep/y")}
    (a.root / "run" / "bell\a").write_bytes(b"a control character")
    content["one"] = random_file(b.root / "one", 1)
    dead.kill()
    sources = (f"{a.url('run')}/", b.url("one"), b.url("none"), dead.url("z"))
    results = api.Results()
    with pytest.raises(FilesFailed, match="3 of 6 files failed:") as caught:
        await api.collect(api.CollectRequest(sources, to), results=results)
    assert found(folder) == content
    outcomes = {file.name: file for file in results.unfinished.files}
    assert {name: file.outcome for name, file in outcomes.items()} == {
        **dict.fromkeys(content, "collected"),
        **dict.fromkeys(("bell\a", b.url("none"), dead.url("z")), "missing"),
    }
    assert "has a control character" in outcomes["bell\a"].error
    assert caught.value.status == 3
    assert leftovers([a, b, sink]) == []


async def test_only_files_that_cannot_be_looked_up(servers, tmp_path):
    a = servers[0]
    request = api.CollectRequest((a.url("none"), a.url("neither")), str(tmp_path / "out"))
    with pytest.raises(FilesFailed, match="2 of 2 files failed:"):
        await api.collect(request)
    with pytest.raises(SourceError, match="none"):
        await api.collect(request._replace(sources=request.sources[:1]))
    assert not (tmp_path / "out").exists()
