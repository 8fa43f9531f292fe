"""Transfers of Pegasus: documents as its planner writes them, programs as its jobs call them."""

import asyncio
import importlib.util
import json
import stat
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from coalloc.plugins.pegasus_documents import divided
from tests.support.fetching import random_file
from tests.support.listening import reserved
from tests.support.nginx import Nginx
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

PROGRAM = [sys.executable, "-c", "from coalloc.plugins.pegasus import main; main()"]
STAND_IN = """#!/bin/sh
echo "$@" > {folder}/words
cat > {folder}/input
exit {status}
"""


@pytest.fixture
def web(tmp_path):
    with ExitStack() as stack:
        yield [stack.enter_context(Nginx(tmp_path / f"web{i}", tmp_path / f"run{i}")) for i in range(2)]


def transfer(urls, target, **more):
    """Return a transfer of a document; the replicas are URLs, or URLs with their priorities."""
    sources = [
        {"site_label": f"site-{i}", "url": url, **({"priority": priority} if priority is not None else {})}
        for i, (url, priority) in enumerate(each if isinstance(each, tuple) else (each, None) for each in urls)
    ]
    return {
        "type": "transfer",
        "id": 1,
        "lfn": Path(str(target)).name,
        "linkage": "input",
        "src_urls": sources,
        "dest_urls": [{"site_label": "local", "url": f"file://{target}"}],
        **more,
    }


def install(folder: Path, text: str, name: str = "pegasus-transfer") -> None:
    """Write a program of Pegasus into a directory of programs."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """Return the environment of a job whose home directory cannot be written."""
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    return {"PATH": path, "PYTHONPATH": str(Path(__file__).parents[3]), "HOME": "/proc/1/none", **more}


def run(tmp_path: Path, document: object, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run the program with a document as its standard input."""
    return subprocess.run(
        [*PROGRAM, *words],
        input=document if isinstance(document, str) else json.dumps(document),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE,
        env=environment(tmp_path, **more),
    )


def both(web, name: str, size: int = 200_000) -> bytes:
    content = random_file(web[0].root / name, size)
    (web[1].root / name).write_bytes(content)
    return content


def test_a_file_comes_from_its_replicas_with_the_lines_and_records_of_pegasus(web, tmp_path):
    content = both(web, "x y", 3_000_000)
    (tmp_path / "parts").mkdir()
    urls = [f"http://127.0.0.1:{server.port}/x y" for server in web]
    document = [transfer(urls, "$PLACE/new/x y", dest_urls=[
        {"site_label": "lo-cal", "url": "file://localhost$PLACE/new/x y", "priority": 5},
        {"site_label": "other", "url": "file:///nowhere/x", "priority": 1},
    ])]  # fmt: skip
    (tmp_path / "in.json").write_text(json.dumps(document))
    place = {"PLACE": str(tmp_path / "out"), "PEGASUS_MULTIPART_DIR": str(tmp_path / "parts")}
    ended = run(tmp_path, "", "-f", "in.json", **place)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert (tmp_path / "out/new/x y").read_bytes() == content
    assert [path.name for path in (tmp_path / "out/new").iterdir()] == ["x y"]
    lines = [line.partition(":  ")[2] for line in ended.stderr.splitlines() if " INFO:  " in line]
    assert lines[1].startswith("Stats: Total 1 transfers, 2.9 MB transferred in ")
    between = {line.split(" : ")[0].strip() for line in lines[2:-1]}  # a fast replica may deliver everything
    assert between
    assert between <= {f"Between sites site_{i}->lo_cal" for i in range(2)}
    assert lines[-1] == "All transfers completed successfully."
    (part,) = (tmp_path / "parts").iterdir()
    written = part.read_text()
    assert written.startswith('- transfer_attempts:\n  - src_url: "http://127.0.0.1:')
    assert 'dst_label: "lo_cal"' in written
    assert sum(int(line.split()[1]) for line in written.splitlines() if "bytes:" in line) == len(content)


def test_what_coget_does_not_do_goes_to_pegasus_transfer_and_its_status_counts(web, tmp_path):
    content = both(web, "x")
    ours = transfer([server.url("x") for server in web], tmp_path / "x")
    others = [
        {"type": "mkdir", "target": {"site_label": "local", "url": f"file://{tmp_path}/made"}},
        {"type": "remove", "target": {"site_label": "local", "url": f"file://{tmp_path}/old"}},
        transfer(["file:///etc/hostname", web[0].url("x")], tmp_path / "local"),
        transfer(["s3://me@site/bucket/x"], tmp_path / "s3"),
        transfer([web[0].url("x")], tmp_path / "state", linkage="checkpoint"),
        transfer([web[0].url("x")], "", dest_urls=[{"site_label": "a", "url": "gsiftp://a/x"}]),
        transfer([web[0].url("x")], "", dest_urls=[{"site_label": "a", "url": f"symlink://{tmp_path}/link"}]),
    ]
    for status in (0, 1):
        install(tmp_path / "bin", STAND_IN.format(folder=tmp_path, status=status))
        ended = run(tmp_path, [others[0], ours, *others[1:]], "-m", "2", "-n", "3", "-s", "-d")
        assert ended.returncode == status, ended.stderr
        assert ("Some transfers failed!" in ended.stderr) == bool(status)
        assert json.loads((tmp_path / "input").read_text()) == others
        assert (tmp_path / "words").read_text().split() == ["-m", "2", "-n", "3", "-s", "-d"]
        assert (tmp_path / "x").read_bytes() == content


@pytest.mark.parametrize("text", ["# src 1 a file:///x", "[{", "{}", "[]"])
def test_other_documents_go_to_pegasus_transfer_unchanged(tmp_path, text):
    install(tmp_path / "bin", STAND_IN.format(folder=tmp_path, status=3))
    assert run(tmp_path, text).returncode == 1
    assert (tmp_path / "input").read_text() == text


def test_pegasus_transfer_that_is_missing_or_this_program_is_an_error(tmp_path):
    document = [{"type": "remove", "target": {"site_label": "local", "url": "file:///none"}}]
    ended = run(tmp_path, document)
    assert (ended.returncode, "pegasus-transfer is not in PATH" in ended.stderr) == (1, True)
    install(tmp_path / "bin", f'#!/bin/sh\nexec {sys.executable} -c "{PROGRAM[2]}" "$@"\n')
    ended = run(tmp_path, document)
    assert (ended.returncode, "install the one of Pegasus" in ended.stderr) == (1, True)


async def test_only_a_failure_that_may_pass_is_tried_again_as_often_as_asked(tmp_path):
    """A server that closes all connections, and one without the file: attempts are counted by what they log."""
    asked = Counter()

    async def serve(reader, writer):
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        asked[path] += 1
        if path == "/missing":
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    async with raw_server(serve) as port:
        document = [transfer([f"http://127.0.0.1:{port}/{name}"], tmp_path / name) for name in ("missing", "lost")]
        ended = await asyncio.to_thread(run, tmp_path, document, "-m", "2")
    assert ended.returncode == 1
    failures = Counter(line.partition(":  ")[2].split(":")[0] for line in ended.stderr.splitlines() if "ERROR" in line)
    assert failures == {"missing": 1, "lost": 2}
    assert "404" in ended.stderr
    assert "Stats: Total 3 transfers, 0.0 B transferred" in ended.stderr
    assert asked["/missing"] <= 2
    assert asked["/lost"] <= 2 * 5 * 2  # attempts, tries of a source in each, and requests of a try
    assert not (tmp_path / "missing").exists()
    assert not (tmp_path / "lost").exists()


def test_a_replica_that_fails_is_replaced_and_a_priority_is_a_preference(web, tmp_path):
    content = both(web, "x")
    with reserved("127.0.0.1") as closed:
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}/x"
        document = [transfer([(web[0].url("x"), 1), (dead, 99), (web[1].url("x"), 50)], tmp_path / "x")]
        ended = run(tmp_path, document)
    assert (ended.returncode, (tmp_path / "x").read_bytes()) == (0, content)
    (ours,), _ = divided(json.dumps(document), {})
    assert [(each.url, each.priority) for each in ours.replicas] == [
        (dead, 1),
        (web[1].url("x"), 2),
        (web[0].url("x"), 3),
    ]


def test_checksums_are_computed_and_compared_by_pegasus_integrity(web, tmp_path):
    content = both(web, "x")
    both(web, "bad")
    install(
        tmp_path / "bin",
        f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\ncase "$1" in --verify=bad*) exit 1;; esac\n',
        "pegasus-integrity",
    )
    asked = {"generate_checksum": True, "verify_checksum_remote": True}
    document = [transfer([each.url(name) for each in web], tmp_path / name, **asked) for name in ("x", "bad")]
    ended = run(tmp_path, document)
    assert ended.returncode == 1
    assert sorted((tmp_path / "calls").read_text().splitlines()) == sorted(
        f"--{word}={name}={tmp_path}/{name}" for word in ("generate-fullstat-yaml", "verify") for name in ("x", "bad")
    )
    assert (tmp_path / "x").read_bytes() == content
    assert not (tmp_path / "bad").exists()
    install(tmp_path / "bin", "")
    (tmp_path / "bin/pegasus-integrity").unlink()
    assert run(tmp_path, document[:1]).returncode == 1  # nothing can compare it


def test_a_file_that_another_job_has_put_there_meanwhile_is_not_removed(web, tmp_path):
    both(web, "x")
    target = tmp_path / "x"
    other = f"#!/bin/sh\necho other > {target}.new\nmv {target}.new {target}\nexit 1\n"
    install(tmp_path / "bin", other, "pegasus-integrity")
    document = [transfer([each.url("x") for each in web], target, verify_checksum_remote=True)]
    assert run(tmp_path, document).returncode == 1
    assert target.read_text() == "other\n"


def test_many_jobs_at_once_on_one_machine_also_for_one_file(web, tmp_path):
    content = both(web, "x", 1_000_000)
    (tmp_path / "home").mkdir()
    targets = [tmp_path / "shared" if i % 2 else tmp_path / f"own{i}" for i in range(6)]
    jobs = [
        subprocess.Popen(
            PROGRAM, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(tmp_path, HOME=str(tmp_path / "home")), cwd=tmp_path,
        )
        for _ in targets
    ]  # fmt: skip
    for job, target in zip(jobs, targets, strict=True):
        job.stdin.write(json.dumps([transfer([each.url("x") for each in web], target)]))
        job.stdin.close()
    for job in jobs:
        with job.stderr:
            printed = job.stderr.read()
        assert job.wait(PATIENCE) == 0, printed
    assert {target.read_bytes() for target in targets} == {content}
    assert not list(tmp_path.glob("*.coget"))


@pytest.mark.parametrize(
    "changes",
    [
        {"src_urls": []},
        {"src_urls": [{"site_label": "a", "url": "http://a/x", "type": "singularity"}]},
        {"src_urls": [{"site_label": "a", "url": "http://a/x", "checkpoint": True}]},
        {"src_urls": [{"site_label": "a", "url": "http://secret.example/x"}]},
        {"src_urls": [{"site_label": 3, "url": "http://a/x"}]},
        {"src_urls": "x"},
        {"dest_urls": []},
        {"dest_urls": [{"site_label": "a", "url": "file:///x/"}]},
        {"dest_urls": [{"site_label": "a", "url": "moveto:///x"}]},
        {"type": "mkdir"},
        {"src_urls": [{"site_label": name, "url": f"gsiftp://{name}/x"} for name in "ab"]},
    ],
)
def test_transfers_that_coget_leaves_to_pegasus_transfer(changes):
    entry = {**transfer(["http://a/x"], "/x"), **changes}
    assert divided(json.dumps([entry]), {"X509_USER_PROXY_a": "/p"}, ["https://b", "secret.example"]) == ([], [entry])


def test_the_proxy_of_a_site_and_encoded_names():
    entry = transfer(["gsiftp://a/x%20 y", "gsiftp://b:2811/x?1#2"], "/x")
    for source in entry["src_urls"]:
        source["site_label"] = "my-site"
    (ours,), others = divided(json.dumps([entry]), {"X509_USER_PROXY_my_site": "/p"})
    assert (others, ours.proxy) == ([], "/p")
    assert [each.url for each in ours.replicas] == ["gsiftp://a/x%2520%20y", "gsiftp://b:2811/x%3F1%232"]


@pytest.mark.long
def test_with_the_real_programs_of_pegasus(web, tmp_path):
    found = importlib.util.find_spec("Pegasus")
    if found is None:
        pytest.skip("pip install --no-deps pegasus-wms.worker brings it")
    programs = Path(found.origin).parent / "cli"
    for name in ("pegasus-transfer", "pegasus-integrity"):
        install(tmp_path / "bin", f'#!/bin/sh\nexec {sys.executable} {programs}/{name}.py "$@"\n', name)
    content = both(web, "x")
    (tmp_path / "old").write_text("old")
    (tmp_path / "source").write_text("local")
    (tmp_path / "parts").mkdir()
    target = {"site_label": "local", "url": f"file://{tmp_path}/old"}
    ours = transfer([each.url("x") for each in web], tmp_path / "x", generate_checksum=True)
    local = transfer([f"file://{tmp_path}/source"], tmp_path / "link/copy")
    kickstart = tmp_path / "kickstart"
    more = {"KICKSTART_INTEGRITY_DATA": str(kickstart), "PEGASUS_MULTIPART_DIR": str(tmp_path / "parts")}
    ended = run(tmp_path, [ours, local], "-s", **more)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "x").read_bytes() == content
    assert (tmp_path / "link/copy").is_symlink()
    assert (tmp_path / "link/copy").read_text() == "local"
    assert "sha256" in kickstart.read_text()
    assert ended.stderr.count("Stats: Total 1 transfers") == 2
    assert len(list((tmp_path / "parts").iterdir())) == 2
    made = [{"type": "mkdir", "target": {"site_label": "local", "url": f"file://{tmp_path}/made"}}]
    assert run(tmp_path, made).returncode == 0
    assert stat.S_ISDIR((tmp_path / "made").stat().st_mode)
    assert run(tmp_path, [{"type": "remove", "target": target}]).returncode == 0
    assert not (tmp_path / "old").exists()
    failing = transfer([f"file://{tmp_path}/none"], tmp_path / "never")
    assert run(tmp_path, [failing, ours], "-m", "1").returncode == 1
    assert [path.name for path in (tmp_path / "link").iterdir()] == ["copy"]
