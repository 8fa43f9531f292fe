"""The report on promises: its numbers are those of the ledger, for each reader."""

import time
from uuid import uuid4

import httpx
import pytest

from broker.models.guarantees import NewGuarantee, Outcome
from broker.models.tasks import NewTask
from broker.storage.guarantees import GuaranteeStore
from broker.storage.tasks import TaskStore
from tests.broker.reports.test_transfers import fact, report, rows

NOW = time.time()
GB = 10**9


def request(chance: float, *, owner: str = "ann", task: str | None = None, refused: bool = False) -> NewGuarantee:
    """A promise of half an hour ago, for a deadline in 1,000 s from then; or a refusal."""
    made = NOW - 1800
    return NewGuarantee(
        owner=owner,
        request_id=None,
        task_id=task,
        bytes=2 * GB,
        sink="FNAL",
        server="",
        made_at=made,
        deadline=made + 1000,
        sure=0.9,
        chance=chance,
        t50=None if refused else made + 400,
        t95=None if refused else made + 600,
        expires_at=None if refused or task else made + 2000,
        outcome="refused" if refused else None,
    )


async def stored(broker, new: NewGuarantee, outcome: Outcome | None = None, sources: str = "a") -> None:
    shares = {} if new.outcome else {f"ftp://{source}.example": 1e6 for source in sources}
    async with broker.factory.database.write() as connection:
        store = GuaranteeStore(connection)
        number = await store.add(new, shares, new.made_at, 1000)
        if outcome:
            await store.close(number, outcome, new.made_at + 700)


async def ended(broker, seconds: float, canceled: str | None = None, owner: str = "ann") -> str:
    """A task that ended so many seconds after the request."""
    task = NewTask(
        owner=owner,
        kind="TRANSFER",
        submission_id=uuid4(),
        source=uuid4(),
        destination=uuid4(),
        label="",
        deadline=NOW + 3600,
        queue="nowhere",
        items=(),
    )
    at = NOW - 1800 + seconds
    async with broker.factory.database.write() as connection:
        number, _ = await TaskStore(connection).add(task, [], NOW - 1800)
        if canceled:
            await TaskStore(connection).end(number, at, "CANCELED", "no need", "canceled", canceled=canceled)
        else:
            await TaskStore(connection).finish([number], at)
    return number


@pytest.fixture
async def ledger(broker) -> httpx.AsyncClient:
    """An admin's client of a broker with the promises of two users."""
    for chance, outcome in ((0.92, "kept"), (0.94, "kept"), (0.9, "broken"), (0.97, "given up"), (0.9, "expired")):
        await stored(broker, request(chance), outcome, "ab" if chance == 0.94 else "a")
    await stored(broker, request(0.91, owner="a-transfer"), "kept")
    for chance, seconds in ((0.3, 900.0), (0.1, 1100.0)):
        await stored(broker, request(chance, task=await ended(broker, seconds), refused=True))
    await stored(broker, request(0.2, task=await ended(broker, 10.0, canceled="ann"), refused=True))
    await stored(broker, request(0.2, refused=True))
    await stored(broker, request(0.95, task=await ended(broker, 100.0)))
    return await broker.client("admin")


async def test_promises_are_counted_by_their_outcomes(ledger):
    document = await report(ledger, "promises")
    facts = {name: fact(document, name) for name in ("Promises made", "Broken", "Refused", "T95 / T50")}
    assert facts == {"Promises made": 7, "Broken": 1, "Refused": 4, "T95 / T50": pytest.approx(1.5)}
    assert fact(document, "Kept") == pytest.approx(4 / 5)
    assert fact(document, "Time left at the end") == pytest.approx(0.3)
    (wanted,) = await rows(ledger, "promises", "asked")
    assert [int(wanted[name]) for name in ("made", "open", "kept", "broken", "other")] == [7, 0, 4, 1, 2]
    assert float(wanted["promised"]) == pytest.approx((0.92 + 0.94 + 0.9 + 0.91 + 0.95) / 5)
    assert float(wanted["links"]) == pytest.approx(8 / 7)
    by_class = await rows(ledger, "promises", "classes")
    assert [(each["class"], each["made"]) for each in by_class] == [
        ("task, 1 GB – 4 GB", "1"),
        ("transfer of a client, 1 GB – 4 GB", "6"),
    ]
    by_link = {each["source"]: each for each in await rows(ledger, "promises", "links")}
    assert {source: int(each["made"]) for source, each in by_link.items()} == {
        "ftp://a.example": 7,
        "ftp://b.example": 1,
    }
    (broken,) = await rows(ledger, "promises", "broken")
    assert (broken["owner"], broken["sources"], float(broken["chance"])) == ("ann", "ftp://a.example", 0.9)


async def test_many_probabilities_and_links_make_few_rows(broker):
    for number in range(60):
        new = request(0.96)._replace(sure=0.9 + number / 1000, sink=f"S{number}")
        await stored(broker, new, "kept")
    await stored(broker, request(0.96)._replace(sure=0.999, sink="S59"), "kept")
    admin = await broker.client("admin")
    wanted = await rows(admin, "promises", "asked")
    assert [(float(each["sure"]), int(each["made"])) for each in wanted] == [(0.9, 50), (0.95, 10), (0.99, 1)]
    links = await rows(admin, "promises", "links")
    assert len(links) == 50
    assert (links[0]["sink"], links[0]["made"]) == ("S59", "2")
    (table,) = (each for each in (await report(admin, "promises"))["tables"] if each["name"] == "links")
    assert table["note"] == "The 50 links with the most promises, of 60."


async def test_refused_tasks_that_ran_all_the_same_show_needless_refusals(ledger, broker):
    later = await ended(broker, 100.0)
    await stored(broker, request(0.3, task=later, refused=True))
    await stored(broker, request(0.95, task=later))
    refusals = {each["kind"]: each for each in await rows(ledger, "promises", "refusals")}
    task, client = refusals["task"], refusals["transfer of a client"]
    assert [int(task[name]) for name in ("refused", "ended", "kept")] == [4, 2, 1]
    assert [client["ended"], client["kept_share"]] == ["0", ""]
    assert fact(await report(ledger, "promises"), "Refused, but in time") == pytest.approx(0.5)


async def test_the_diagram_compares_probabilities_with_outcomes(ledger, broker):
    for number in range(20):
        await stored(broker, request(0.95 + number / 1000), "kept" if number % 5 else "broken")
    document = await report(ledger, "promises")
    (figure,) = document["figures"]
    assert figure["spec"]
    assert "promised 95.9 % promised, 81 % observed" in figure["alternative"]
    assert "of fewer than 20" in figure["note"]


async def test_users_see_their_own_promises_and_a_period_and_a_sink_narrow_them(ledger, broker):
    user = await broker.client("transfer")
    assert fact(await report(user, "promises"), "Promises made") == 1
    for narrowed in ({"until": NOW - 1900}, {"since": NOW - 1700}, {"sink": "CERN"}):
        document = await report(ledger, "promises", **narrowed)
        assert (fact(document, "Promises made"), fact(document, "Kept")) == (0, None)
        assert document["tables"][0]["note"] == "There was no promise in this period."
