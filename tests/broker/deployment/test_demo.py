"""The demonstration: all promised content, the same for the same seed, shown by one command within a minute."""

import asyncio
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from math import inf, log
from pathlib import Path
from statistics import mean, pstdev
from typing import Self

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.config.settings import Settings
from broker.demo.decisions import decided, downloads
from broker.demo.filling import fill
from broker.demo.made_up_tasks import errands
from broker.demo.routes import DEPOTS, measured_routes
from broker.demo.sharing import DemoServer, shared
from broker.demo.traffic import DemoTransfer, transfers
from broker.demo.world import DAY, PEOPLE, PROBER, DemoLink, Story, World, world
from broker.factory import Factory
from broker.models.callers import Caller
from broker.models.decisions import Range
from broker.reports.registry import REPORTS
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from broker.storage.tasks import TaskFilter
from tests.broker.conftest import DATABASES
from tests.support.broker import PROGRAM
from tests.support.postgres import Postgres
from tests.support.programs import run, start
from tests.support.waiting import PATIENCE, wait_until

SEED = 1
END = 1_790_000_000.0
WEEK = 7 * DAY
SECONDS = PATIENCE


@cache
def made() -> World:
    return world(SEED)


@cache
def all_transfers() -> list[DemoTransfer]:
    return transfers(made(), SEED, END)


def along(link: DemoLink) -> list[DemoTransfer]:
    return [
        each
        for each in all_transfers()
        if (each.observed.source, each.observed.sink) == (link.source.source, link.sink)
    ]


def link_with(story: Story) -> DemoLink:
    return next(link for link in made().links if link.story == story)


def rates(link: DemoLink, older: float, newer: float) -> list[float]:
    """Return the rates of large successful files between two ages."""
    return [
        each.observed.bytes / (each.observed.ended - each.observed.started)
        for each in along(link)
        if each.observed.outcome == "ok" and each.observed.bytes > 1e8 and newer < END - each.observed.started < older
    ]


def test_the_same_seed_makes_the_same_world_for_every_end_time():
    later = transfers(world(SEED), SEED, END + 100_000)
    assert world(SEED) == made()
    assert errands(world(SEED), SEED) == errands(made(), SEED)
    told = {each.observed.id: each.observed for each in all_transfers()}
    assert len(later) == len(all_transfers())
    for _, each in later:
        assert each.bytes == told[each.id].bytes
        assert each.started == pytest.approx(told[each.id].started + 100_000)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(1, 6))
def test_the_demo_has_the_documented_amount_of_data(seed):
    made = world(seed)
    moved = transfers(made, seed, END)
    assert 15_000 < len(moved) < 25_000
    assert moved[-1].observed.ended <= END < moved[-1].observed.ended + 3600
    assert {each.subject for each in moved} == {*PEOPLE, PROBER}
    assert {each.observed.outcome for each in moved} == {"ok", "failed", "corrupt"}
    copies = Counter(replica.dataset for replica in made.replicas)
    assert len(copies) == len(made.datasets) > 100
    assert set(copies.values()) == {2, 3}
    assert made.bad
    assert len({link.sink for link in made.links}) == len(made.sites)
    possible = {(endpoint.name, site.name) for endpoint in made.endpoints for site in made.sites}
    assert len({(link.source.name, link.sink) for link in made.links}) == 22 < len(possible)


def test_transfers_of_a_link_are_in_order_with_one_reporter_a_day():
    for link in made().links:
        moved = along(link)
        for before, after in pairwise(moved):
            assert before.observed.ended <= after.observed.ended
        people = defaultdict(set)
        for each in moved:
            people[(each.observed.started - END) // DAY].add(each.subject)
        assert {len(each) for each in people.values()} == {1}


def test_the_drifting_way_is_slower_from_week_to_week():
    link = link_with("drifting")
    first, middle, last = (mean(rates(link, older * WEEK, (older - 2) * WEEK)) for older in (8, 5, 2))
    assert first > 1.2 * middle > 1.2 * 1.2 * last


def test_the_worse_way_scatters_twice_as_much_since_the_last_full_week_began():
    link = link_with("worse")
    began = END - (END // WEEK - 1) * WEEK
    before, after = (pstdev(map(log, rates(link, *ages))) for ages in ((8 * WEEK, began), (began, 0)))
    assert after > 2 * before


def test_the_stale_link_is_weeks_old_and_the_rare_one_hardly_used():
    assert END - along(link_with("stale"))[-1].observed.ended > 3 * WEEK
    assert 2 < len(along(link_with("rare"))) < 20
    assert {each.subject for each in along(link_with("probed"))} == {PROBER}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(1, 6))
def test_decisions_are_of_several_sources_and_some_go_wrong(seed):
    made = world(seed)
    found = [decided(made, each, f"demo.{i}", seed, END) for i, each in enumerate(downloads(made, seed))]
    decisions = [each for each in found if each]
    assert len(decisions) > 100
    for each in decisions:
        assert len(each.sources) > 1
        assert sum(source.bytes for source in each.sources) == each.bytes == tiled(each.ranges)
    assert {"adaptive", "single"} < {each.strategy for each in decisions}
    endings = Counter(part.ending for each in decisions for part in each.ranges)
    assert set(endings) == {"whole", "shortened", "stalled", "failed"}


def tiled(ranges: Sequence[Range]) -> int:
    """Check that ranges follow each other without gap or overlap; return the end of the last one."""
    at = 0
    for each in sorted((each for each in ranges if each.bytes), key=lambda each: each.start):
        assert (each.start, each.end - each.start) == (at, each.bytes)
        at = each.end
    return at


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(1, 6))
def test_one_depot_helps_another_harms_and_the_third_is_hardly_measured(seed):
    uses: Counter[str] = Counter()
    seconds = defaultdict(list)
    for _, _, each in measured_routes(world(seed), seed, END):
        assert END - 40 * DAY < each.ended <= END
        uses[each.route] += 1
        seconds[each.route].append(log(each.opening_seconds + each.beginning_seconds))
    helpful, harmful, rare = (each.route for each in DEPOTS)
    assert mean(seconds[helpful]) < mean(seconds["none"]) < mean(seconds[harmful])
    assert 0 < uses[rare] < 50 < uses[harmful] < uses[helpful] == uses["none"]


SERVERS = st.builds(
    DemoServer,
    setup=st.floats(0, 30),
    rate=st.floats(1e3, 1e9),
    planned=st.integers(0, 10**10),
    stops=st.floats(0, 100) | st.just(inf),
    fails=st.booleans(),
)


@given(st.lists(SERVERS, max_size=5), st.floats(1e3, 1e9))
def test_servers_share_a_file_to_the_last_byte(servers, rate):
    servers = [*servers, DemoServer(0.1, rate, 1)]  # at least one of them is still running
    ranges = shared(servers)
    assert tiled(ranges) == sum(server.planned for server in servers)
    for each in ranges:
        server = servers[each.source]
        assert each.asked <= each.over
        assert each.bytes == 0 or each.asked + server.setup == each.first <= each.last <= max(each.over, each.first)
        assert each.last is None or each.last <= server.stops + 1 / server.rate


class Demo:
    """A process of `coget-broker demo`, and its output.

    :param database: URL of the database that it keeps; empty: a temporary one
    """

    def __init__(self, folder: Path, *words: str, database: str = "") -> None:
        self.database = database
        self._said = folder / "demo.log"
        with self._said.open("wb") as log:
            kept = ["--database", database] if database else []
            command = [PROGRAM, "demo", "--port", "0", *kept, *words]
            environment = os.environ | {"TMPDIR": str(folder)}
            self.process = start(command, stdout=log, stderr=log, cwd=folder, env=environment)

    def __enter__(self) -> Self:
        return self.wait()

    def __exit__(self, *exc_info: object) -> None:
        self.process.terminate()
        self.process.wait(SECONDS)

    def output(self) -> str:
        return self._said.read_text()

    def wait(self) -> Self:
        """Wait until it serves."""

        def serves() -> bool:
            assert self.process.poll() is None, self.output()
            return "running on" in self.output()

        wait_until(serves)
        return self

    def client(self, role: str) -> httpx.Client:
        (token,) = re.findall(rf"^The token of \w+, {role}: (\S+)$", self.output(), re.MULTILINE)
        (url,) = re.findall(r"running on (http://\S+)", self.output())
        return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=SECONDS)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The demonstration on a database that it keeps."""
    folder = tmp_path_factory.mktemp("shown")
    with Demo(folder, database=f"sqlite:///{folder}/kept.sqlite") as started:
        yield started


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database with the demonstration: by the command on SQLite, and without serving on PostgreSQL."""
    if request.param == "sqlite":
        shown: Demo = request.getfixturevalue("shown")
        yield shown.database
        return
    server: Postgres = request.getfixturevalue("server")
    url = server.create()
    upgrade(addressed(url))
    asyncio.run(filled(url))
    yield url
    server.drop(url)


async def filled(url: str) -> None:
    factory = Factory.of(Settings(url), compiled=False)
    try:
        await fill(factory, SEED, time.time())
    finally:
        await factory.database.close()


async def test_the_demo_data_is_stored_like_real_data(database):
    factory, now = Factory.of(Settings(database), compiled=False), time.time()
    try:
        async with factory.database.read() as connection:
            found = await connection.exec_driver_sql("SELECT count(*), max(ended) - min(ended) FROM observations")
            ends = [each.observed.ended for each in all_transfers()]
            assert tuple(found.one()) == (len(ends), pytest.approx(max(ends) - min(ends)))
        page = await factory.tasks.page(TaskFilter(), [("request_time", True)], 100, 0)
        assert {task.status for task in page.tasks} == {"ACTIVE", "SUCCEEDED", "FAILED"}
        assert Counter(task.paused is not None for task in page.tasks)[True] == 1
        for task in page.tasks:
            assert (task.status == "SUCCEEDED") <= (task.bytes_transferred == task.bytes > 0)
            assert task.files_transferred == task.succeeded
            assert task.requested_at < (task.completed_at or now) <= now
        caller = Caller(subject="admin", role="admin")
        failed = next(task for task in page.tasks if task.status == "FAILED" and not task.canceled)
        events, _ = await factory.tasks.events(caller, failed.id, None, 100, 0)
        assert [event.code for event in events][0 :: len(events) - 1] == ["FAILED", "STARTED"]
        entries = await factory.tokens.audit(None, 1000)
        assert [entry.at for entry in entries] == sorted((entry.at for entry in entries), reverse=True)
        assert {"put site", "import", "mark bad", "pause task"} <= {entry.action for entry in entries}
    finally:
        await factory.database.close()


def test_one_command_shows_it(shown):
    with shown.client("admin") as admin, shown.client("transfer") as user:
        assert len(admin.get("/broker/v1/datasets", params={"limit": 1000}).json()["datasets"]) == len(made().datasets)
        assert admin.get("/broker/v1/audit").status_code == 200
        assert user.get("/broker/v1/audit").status_code == 403
        mine = user.get("/broker/v1/tasks").json()["tasks"]
        assert {task["owner"] for task in mine} == {"ann"}
    again = run([PROGRAM, "demo", "--database", shown.database], text=True)
    assert again.returncode == 2
    assert "has tables already" in again.stderr


def lines(document: dict) -> int:
    """Return the number of rows in a report's tables, and of the rows behind its figures."""
    drawn = [figure["table"] for figure in document["figures"] if not figure["note"]]
    return sum(len(table["rows"]) for table in (*document["tables"], *drawn))


def links(name: str, documents: dict[str, dict]) -> Iterator[str]:
    """Return the links to a report of this name."""
    for document in documents.values():
        for table in (*document["tables"], *(figure["table"] for figure in document["figures"])):
            for row in table["rows"]:
                yield from (value for value in row if isinstance(value, str) and value.startswith(f"{name}?"))


def test_each_report_has_rows(shown):
    with shown.client("admin") as admin:
        answers: dict[str, dict] = {}

        def ask(name: str, query: str) -> dict:
            answer = admin.get(f"/broker/v1/reports/{query}")
            assert answer.status_code == 200, answer.text
            answers[name] = answer.json()
            return answers[name]

        for kind in sorted(REPORTS.values(), key=lambda kind: not kind.listed):
            queries = [kind.name] if kind.listed else list(dict.fromkeys(links(kind.name, answers)))
            # Forecasts are compared while it serves.
            wait_until(lambda: any(lines(ask(kind.name, query)) for query in queries), 3 * SECONDS)  # noqa: B023


def test_the_users_own_log_is_shown_as_it_is(tmp_path):
    file = tmp_path / "transfers.log"
    file.write_text("source,start,bytes,seconds\nftp://a.example,1700000000,1000000000,10\n")
    with Demo(tmp_path, "--log", str(file)) as shown:
        with shown.client("transfer") as user:
            (only,) = user.get("/broker/v1/transfers").json()["transfers"]
            assert (only["bytes"], only["subject"]) == (1_000_000_000, "ann")
            assert only["ended"] == 1700000010
            assert not user.get("/broker/v1/datasets").json()["datasets"]
        assert list(tmp_path.glob("coget-demo-*"))
    assert not list(tmp_path.glob("coget-demo-*"))
