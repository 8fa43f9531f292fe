"""YAML networks: reading, writing, and errors for invalid ones."""

import builtins
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.errors import UsageError
from coalloc.planner import Demand, File, Host, Isp, Link, LinkKey, Network, Shared
from coalloc.planner.documents.scenario import Scenario
from coalloc.planner.documents.scenario import scenario as read_document
from coalloc.planner.documents.yaml_scenario import read, write

TEXT = """
hosts:
  cern: {url: "ftp://cern.example:2811", up: 1 Gbit/s, storage: 50 GB}
  desk: {down: 200 Mbit/s, relays: false}
  lyon:
    isps:
      fibre: {up: 1 Gbit/s}
      cable: {up: 10 Mbit/s, down: 40 Mbit/s}
    io: 300 MB/s
links:
  cern -> desk: 100 Mbit/s
  cern <-> lyon (fibre): {rate: 40 MB/s, likely: [30 MB/s, 44 MB/s], age: 20 min, price: 0.02 per GB}
  lyon (fibre) -> desk: 400mbit
shared:
  sea: {rate: 1 Gbit/s, links: [cern -> desk, cern -> lyon (fibre)]}
files:
  run1.root: {size: 8 GB, at: [cern, lyon], to: desk, available: 30 s, deadline: 10 min}
budget: 10
"""
MB = 1_000_000


def test_all_that_may_be_in_it():
    network, demand, urls = read(TEXT)
    assert urls == {"cern": "ftp://cern.example:2811"}
    assert network.hosts["cern"] == Host("cern", (Isp("", 125 * MB),), storage=50_000 * MB)
    assert network.hosts["desk"] == Host("desk", (Isp("", None, 25 * MB),), relays=False)
    fibre, cable = Isp("fibre", 125 * MB), Isp("cable", 1_250_000, 5 * MB)
    assert network.hosts["lyon"] == Host("lyon", (fibre, cable), io=300 * MB)
    direct, there = LinkKey("cern", "desk"), LinkKey("cern", "lyon", "", "fibre")
    back, on = LinkKey("lyon", "cern", "fibre"), LinkKey("lyon", "desk", "fibre")
    assert set(network.links) == {direct, there, back, on}
    for key in (there, back):
        assert network.links[key] == Link(key, 40 * MB, (30 * MB, 44 * MB), 1200.0, 2e-11)
    assert network.links[on] == Link(on, 50 * MB)
    assert network.shared == (Shared("sea", 125 * MB, {direct: 1.0, there: 1.0}),)
    assert demand == Demand((File("run1.root", 8000 * MB, ("cern", "lyon"), ("desk",), 30.0, 600.0),), 10.0)


def test_empty_document_is_a_network_without_hosts():
    assert read("") == Scenario(Network({}, {}), Demand(()))


def test_yaml_may_use_its_anchors():
    network = read("hosts: {a: &near {up: 1 MB/s}, b: *near, c: {<<: *near, io: 1 MB/s}}").network
    assert network.hosts["a"].isps == network.hosts["b"].isps == network.hosts["c"].isps


@pytest.mark.parametrize(
    ("old", "new", "message", "remedy"),
    [
        (
            "400mbit",
            "400 Mb/s",
            r"line 13: links, lyon \(fibre\) -> desk: '400 Mb/s' has an unknown unit",
            "200 Mbit/s",
        ),
        ("at: [cern, lyon]", "at: [cern, bern]", "line 17: files, run1.root, at: there is no host 'bern'", "add it"),
        ("to: desk", "to: lyon", "line 17: files, run1.root, to: lyon has the file already", "leave out that"),
        ("size: 8 GB, ", "", "line 17: files, run1.root: it lacks 'size'", "size: 8 GB"),
        ("relays: false", "relays: 5", "line 4: hosts, desk, relays: a number is neither true nor false", "write true"),
        ("relays", "relais", "line 4: hosts, desk, relais: unknown key", "use url, up"),
        ("  desk:", "  no:", "hosts: False is not a name", "quotes"),
        ("  desk:", "  a -> b:", "line 4: hosts, a -> b: 'a -> b' cannot be the name", "arrows"),
        ("[30 MB/s", "[50 MB/s", "line 12: .*likely: it is not two rates, the lower one first", "80 Mbit/s"),
        ("rate: 40 MB/s, ", "", r"line 12: links, cern <-> lyon \(fibre\): it has no rate", "cern -> desk: 100"),
        (
            "cern -> desk: 1",
            "cern to desk: 1",
            "line 11: links, cern to desk: 'cern to desk' is not a link",
            "cern <->",
        ),
        ("cern -> desk: 1", "cern -> cern: 1", "link cern -> cern has the same host", "two hosts"),
        ("(fibre) -> desk: 4", "(dsl) -> desk: 4", "the ISP 'dsl', which lyon does not have", "give one"),
        ("lyon (fibre) -> desk", "lyon (fibre) -> cern", "line 13: .*: this link occurs twice", "leave out one"),
        (
            "  cern -> desk: 100",
            "  cern -> desk: 1 MB/s\n  cern -> desk: 100",
            "line 12: .*: it occurs a second",
            "one",
        ),
        ("[cern -> desk,", "[cern -> disk,", "shared set sea names the unknown link cern -> disk", "add the link"),
        (
            "    io: 300 MB/s",
            "    up: 300 MB/s",
            "line 5: hosts, lyon: up and down cannot be combined with isps",
            "move them",
        ),
        ("budget: 10", "budget: much", "line 18: budget: 'much' is not understood", "2.5"),
        ("budget: 10", "budget: [10", "line 19: it is not YAML", "fix this line"),
        ("budget: 10", "budget: 2026-02-31", "it is not YAML", "network.md"),
        ("budget: 10", "notes: 10", "line 18: notes: unknown key", "hosts, links"),
    ],
)
def test_invalid_entries_are_reported_with_line_and_remedy(old, new, message, remedy):
    assert old in TEXT
    with pytest.raises(UsageError, match=rf"net\.yaml.*{message}") as caught:
        read(TEXT.replace(old, new, 1), "net.yaml")
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    "text", ["a", "[1]", "hosts: [a]", "&a [*a]", "hosts: &a {x: *a}", "? [a]\n: b", "hosts: {'': }"]
)
def test_no_text_is_a_defect(text):
    with pytest.raises(UsageError):
        read(text)


def test_missing_pyyaml_is_reported_with_an_installation_command(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "yaml":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    for use in (lambda: read(TEXT), lambda: write(Scenario(Network({}, {})))):
        with pytest.raises(UsageError) as caught:
            use()
        assert caught.value.remedy == "pip install 'coget[planner]'"


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="()"), min_size=1
).filter(lambda name: "->" not in name)
CAPACITIES = st.integers(0, 10**15)
TIMES = st.floats(0, 1e9)
LIMITS = st.none() | CAPACITIES


@st.composite
def hosts(draw, name):
    unnamed = st.builds(Isp, st.just(""), CAPACITIES, LIMITS).map(lambda isp: (isp,))
    named = st.lists(st.builds(Isp, NAMES, LIMITS, LIMITS), max_size=3, unique_by=lambda isp: isp.name).map(tuple)
    return Host(name, draw(named | unnamed), draw(LIMITS), draw(LIMITS), draw(st.booleans()))


@st.composite
def scenarios(draw):
    names = draw(st.lists(NAMES, min_size=2, max_size=5, unique=True))
    all_hosts = {name: draw(hosts(name)) for name in names}
    ends = [(name, isp) for name, host in all_hosts.items() for isp in ({each.name for each in host.isps} or {""})]
    pairs = [(a, b) for a in ends for b in ends if a[0] != b[0]]
    keys = [LinkKey(a[0], b[0], a[1], b[1]) for a, b in draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6))]
    bounds = st.none() | st.tuples(CAPACITIES, CAPACITIES).map(sorted).map(tuple)
    links = {
        key: Link(key, draw(CAPACITIES), draw(bounds), draw(st.none() | TIMES), draw(st.floats(0, 1))) for key in keys
    }
    shared = ()
    if keys:
        weights = st.dictionaries(st.sampled_from(keys), st.floats(0, 10), min_size=1)
        shared = (Shared(draw(NAMES), draw(CAPACITIES), draw(weights)),)
    file = st.builds(File, NAMES, CAPACITIES, st.just((names[0],)), st.just(tuple(names[1:])), TIMES, st.none() | TIMES)
    files = draw(st.lists(file, max_size=3, unique_by=lambda each: each.name))
    urls = {names[0]: "ftp://host.example:2811"}
    return Scenario(Network(all_hosts, links, shared), Demand(tuple(files), draw(st.none() | TIMES)), urls)


@given(scenarios())
def test_written_scenario_is_read_back_unchanged(scenario):
    assert read(write(scenario)) == scenario


def test_a_name_that_cannot_be_written_is_refused():
    with pytest.raises(UsageError, match=r"'a \(b\)' cannot be written"):
        write(Scenario(Network.of((Host("a (b)"),), ())))


def test_the_example_of_the_reference_is_one():
    paper = Path(__file__).parents[4] / "docs/reference/network.md"
    example = textwrap.dedent(paper.read_text().split("\n\n")[2])
    assert len(read(example).network.links) == 4


@pytest.mark.parametrize("name", ["a{}b", "a{}->", "a -> b{}c", "a -> b{}(c)d", "{}x"])
def test_names_of_links_that_mean_nothing_are_soon_refused(name):
    with pytest.raises(UsageError):
        read_document({"hosts": {"a": {}}, "links": {name.format(100_000 * " "): 1}})


def test_mappings_that_double_from_line_to_line_are_refused():
    lines = ["m0: &m0 {up: 1 MB/s}", *(f"m{i + 1}: &m{i + 1} {{<<: [*m{i}, *m{i}]}}" for i in range(60))]
    with pytest.raises(UsageError, match="line 2: m1, <<: several mappings are merged"):
        read("\n".join(lines))
