"""`coget plan --network`: as text, as JSON, as a picture."""

import json
import xml.etree.ElementTree as ElementTree
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.coget import coget, without
from tests.support.pages import blocks

PAPER = Path(__file__).parents[3] / "docs/howto/plan.md"


@pytest.fixture
def network(home):
    """The example network of the paper."""
    example = next(block.text for block in blocks(PAPER) if block.name == "net.yaml")
    (home / "net.yaml").write_text(example)
    return home / "net.yaml"


def test_plan_is_printed_as_the_docs_show_it(network, home):
    result = coget(["plan", "--network", "net.yaml"], home)
    assert result.returncode == 0, result.stderr
    shown = next(block.text for block in blocks(PAPER) if block.kind == "printed")
    assert [line.rstrip() for line in result.stdout.splitlines()] == shown.splitlines()


def test_as_json_it_can_be_checked(network, home):
    plan = json.loads(coget(["plan", "--json", "--network", "net.yaml"], home).stdout)
    assert plan["seconds"] == float(Fraction(plan["certificate"]["seconds"])) == pytest.approx(4000 / 29)
    assert plan["direct_seconds"] == 640
    for file, size in (("run1.root", 8_000_000_000), ("run2.root", 2_000_000_000)):
        assert sum(path["bytes"] for path in plan["paths"] if path["file"] == file) == size
    assert {(each["kind"], each.get("source"), each.get("host")) for each in plan["certificate"]["limits"]} == {
        ("link", "cern", None),
        ("link", "kit", None),
        ("up", None, "lyon"),
    }
    assert all(flow["rate"] <= flow["capacity"] * (1 + 1e-9) for flow in plan["flows"])


def test_a_picture_has_hosts_rates_and_the_sentence(network, home):
    result = coget(["plan", "--network", "net.yaml", "--picture", "plan.svg"], home)
    assert result.returncode == 0, result.stderr
    texts = " ".join(ElementTree.parse(home / "plan.svg").getroot().itertext())
    for text in (
        "cern",
        "lyon",
        "kit",
        "desk",
        "40.0 MB/s of 40.0 MB/s",
        "up 50.0 MB/s",
        "run1.root",
        "137.9 s at least",
    ):
        assert text in texts
    again = (home / "plan.svg").read_bytes()
    coget(["plan", "--network", "net.yaml", "--picture", "plan.svg"], home)
    assert (home / "plan.svg").read_bytes() == again


def test_a_method_carries_it_out_in_virtual_time(network, home):
    result = coget(["plan", "--json", "--network", "net.yaml", "--method", "path-sync", "--picture", "p.png"], home)
    assert result.returncode == 0, result.stderr
    done = json.loads(result.stdout)["carried_out"]
    assert (done["method"], done["outcome"]) == ("path-sync", "done")
    assert 137 < done["seconds"] < 150
    assert len(done["hops"]) > 100
    assert (home / "p.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "all-at-once takes 13 min 20 s in 2 hops"
        in coget(["plan", "--network", "net.yaml", "--method", "all-at-once"], home).stdout
    )


def test_impossible_deadline_is_reported_with_file_and_time(network, home):
    text = network.read_text()
    network.write_text(text.replace("{size: 2 GB, at: [cern, kit],", "{size: 5 GB, deadline: 60 s, at: [cern, kit],"))
    result = coget(["plan", "--network", "net.yaml"], home)
    assert (result.returncode, "run2.root" in result.stderr, "60 s" in result.stderr) == (2, True, True)


def test_links_that_were_measured_need_not_be_written(servers, home):
    roots = [f"ftp://{server.host}:{server.port}{server.root}/" for server in servers]
    assert coget(["probe", "--bytes", "2 MB", *roots], home).returncode == 0
    hosts = "".join(f"  h{i}: {{url: '{url}'}}\n" for i, url in enumerate(roots))
    (home / "net.yaml").write_text(f"hosts:\n{hosts}files:\n  x: {{size: 1 GB, at: h0, to: h2}}\n")
    result = coget(["plan", "--json", "--network", "net.yaml"], home)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["direct_seconds"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a SOURCE, or --network"),
        (["--network", "net.yaml", "ftp://a.example/x"], "give a SOURCE, or --network"),
        (["--network", "none.yaml"], "cannot read none.yaml: No such file"),
        (["--network", "net.yaml", "--metalink"], "--metalink makes no sense"),
        (["--network", "net.yaml", "--picture", "plan.doc"], "use one of .svg"),
        (["--network", "net.yaml", "--method", "magic"], "unknown method 'magic'"),
        (["--picture", "plan.svg", "ftp://a.example/x"], "--picture makes no sense"),
    ],
)
def test_invalid_arguments_are_refused_with_the_reason(network, home, words, message):
    result = coget(["plan", *words], home)
    assert (result.returncode, message in result.stderr) == (2, True), result.stderr


def test_a_file_without_a_demand_or_that_is_no_text(home):
    (home / "net.yaml").write_text("hosts: {a: {}}")
    assert "names no files" in coget(["plan", "--network", "net.yaml"], home).stderr
    (home / "net.yaml").write_bytes(b"\xff\xfe\xfa")
    assert "is not a text file" in coget(["plan", "--network", "net.yaml"], home).stderr


@pytest.mark.parametrize(
    ("module", "extra", "words"),
    [("yaml", "planner", []), ("numpy", "planner", []), ("matplotlib", "plots", ["--picture", "plan.svg"])],
)
def test_missing_library_is_reported_with_its_extra(network, home, tmp_path, module, extra, words):
    result = coget(["plan", "--network", "net.yaml", *words], home, **without(module, tmp_path))
    assert result.returncode == 2
    assert f"pip install 'coget[{extra}]'" in result.stderr
