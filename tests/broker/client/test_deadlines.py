"""`coget get --by` with a broker: it reserves shares of links beside those of other users, and gives them back."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from coalloc.broker_client import guarantee
from coalloc.broker_client.guarantee import ReservedFinish
from coalloc.config import BrokerAccess
from coalloc.model.progress import Snapshot, SourceView
from coalloc.model.promises import Deadline
from tests.support.broker import broker_in
from tests.support.coget import coget, coget_process, patient
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, until, wait_until

PROMISES = "/broker/v1/guarantees"
MB = 1_000_000
RATE = 3 * MB
CONTENT = np.random.default_rng(5).bytes(2 * RATE)


class Site(NamedTuple):
    """A slow server, a broker that knows its link to this site, two users, and the home directory of one of them."""

    server: Nginx
    url: str
    ann: httpx.Client
    ben: httpx.Client
    home: Path
    environment: dict[str, str]

    @property
    def source(self) -> str:
        return self.server.url("").rstrip("/")

    def get(self, *words: str, name: str = "x") -> list[str]:
        return ["get", "--json", "--streams", "1", "-o", "here", *words, self.server.url(name)]

    def promises(self) -> list[dict[str, Any]]:
        """Return ann's promises and refusals, the newest first."""
        return self.ann.get(PROMISES).json()["guarantees"]

    def newest(self) -> int:
        """Return the number of the newest promise or refusal of ann; 0 if there is none."""
        return max((each["id"] for each in self.promises()), default=0)

    def made(self, after: int) -> dict[str, Any]:
        """Return the only promise or refusal that ann got after the one with this number."""
        (found,) = (each for each in self.promises() if each["id"] > after)
        return found

    def reserve(self, share: float, seconds: float) -> None:
        """Promise a share of the link to another user."""
        size = int(share * RATE * seconds)
        wanted = {"bytes": size, "sources": [self.source], "sink": "HERE", "by": time.time() + seconds, "sure": 0.5}
        assert self.ben.post(PROMISES, json=wanted).status_code == 201


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "export").mkdir()
    (folder / "export" / "x").write_bytes(CONTENT)
    (folder / "export" / "large").write_bytes(CONTENT * 20)
    with broker_in(folder) as broker, Nginx(folder / "export", folder / "run", more="limit_rate 3m;") as server:
        admin = broker.client()
        admin.put("/broker/v1/sites/HERE", json={"name": "HERE"})
        made = []
        for user in ("ann", "ben"):
            body = {"subject": user, "role": "transfer", "site": "HERE"}
            token = admin.post("/broker/v1/tokens", json=body).json()["token"]
            headers = {"Authorization": f"Bearer {token}"}
            made.append((token, httpx.Client(base_url=broker.url, headers=headers, timeout=PATIENCE)))
        (token, ann), (_, ben) = made
        named = {"COGET_BROKER": broker.url, "COGET_BROKER_TOKEN": token}
        site = Site(server, broker.url, ann, ben, folder, {**named, **patient(broker.folder)})
        same = {"source": site.source, "sink": "HERE", "bytes": 10 * RATE}
        begins = [time.time() - 1000 + 20 * number for number in range(30)]
        past = [{**same, "id": f"t{at}", "started": at, "ended": at + 10} for at in begins]
        with ann, ben:
            assert ben.post("/broker/v1/transfers", json=past).json()["accepted"] == 30
            yield site


@pytest.fixture
def site(running: Site, tmp_path: Path) -> Iterator[Site]:
    yield running._replace(home=tmp_path)
    for user in (running.ann, running.ben):
        for each in user.get(PROMISES).json()["guarantees"]:
            user.delete(f"{PROMISES}/{each['id']}")


def test_a_deadline_is_reserved_at_the_broker_and_kept(site):
    before = site.newest()
    done = coget(site.get("--by", "+5 min"), site.home, **site.environment)
    assert done.returncode == 0, done.stderr
    made = site.made(before)
    assert (made["outcome"], made["bytes"], made["sink"]) == ("kept", len(CONTENT), "HERE")
    assert [share["source"] for share in made["shares"]] == [site.source]
    deadline = json.loads(done.stdout)["deadline"]
    assert (deadline["guarantee"], deadline["by"], deadline["kept"]) == (made["id"], pytest.approx(made["by"]), True)


def test_what_others_were_promised_is_refused_before_the_first_byte_with_a_time_that_holds(site):
    before = site.newest()
    site.reserve(0.8, 200)
    done = coget(site.get("--by", "+100 s", name="large"), site.home, **site.environment)  # 40 s, and coget's start
    assert done.returncode == 9, done.stdout
    error = json.loads(done.stdout)["error"]
    assert (error["code"], "has promised to others" in error["message"]) == ("deadline", True)
    assert "use --by " in error["remedy"]
    assert not (site.home / "here").exists()
    assert not list(site.home.glob("here.coget*"))
    assert site.made(before)["outcome"] == "refused"


def test_an_interrupted_transfer_gives_its_share_back(site):
    before = site.newest()
    process = coget_process(site.get("--by", "+5 min", name="large"), site.home, **site.environment)
    with process:
        data = site.home / "here.coget" / "data"
        wait_until(lambda: data.exists() and data.stat().st_blocks)  # so the broker has answered
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert site.made(before)["outcome"] == "given up"


def test_a_transfer_that_fails_breaks_its_promise(site):
    before = site.newest()
    wrong = site.get("--by", "+5 min", "--checksum", "md5:" + 32 * "0")
    done = coget(wrong, site.home, **site.environment)
    assert done.returncode not in (0, 9, 130), done.stdout
    assert site.made(before)["outcome"] == "broken"


def test_a_transfer_that_takes_too_long_breaks_its_promise(site):
    before = site.newest()
    limited = site.get("--by", "+5 min", "--max-time", "4", name="large")
    done = coget(limited, site.home, **site.environment)
    assert done.returncode not in (0, 9, 130), done.stdout
    assert "is not complete after 4 s" in done.stdout
    assert site.made(before)["outcome"] == "broken"


def test_a_server_that_the_broker_does_not_know_may_suffice_beside_one_that_is_promised_to_others(site):
    before = site.newest()
    site.reserve(0.8, 200)
    with Nginx(site.server.root, site.home / "run") as other:
        words = [*site.get("--by", "+100 s", name="large"), other.url("large")]
        done = coget(words, site.home, **site.environment)
    assert done.returncode == 0, done.stdout
    assert site.made(before)["outcome"] == "refused"
    assert json.loads(done.stdout)["deadline"]["guarantee"] is None


def test_a_broker_that_knows_nothing_or_is_away_leaves_the_decision_to_coget(site):
    away = {**site.environment, "COGET_SITE": "NOWHERE"}
    done = coget(site.get("--by", "+5 min"), site.home, **away)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["deadline"]["guarantee"] is None
    (site.home / "here").unlink()
    done = coget(site.get("--by", "+5 min"), site.home, **{**away, "COGET_BROKER": "http://127.0.0.1:9"})
    assert done.returncode == 0, done.stderr
    assert (site.home / "here").read_bytes() == CONTENT


def test_a_running_transfer_reports_what_is_missing_until_its_promise_is_over(site, monkeypatch):
    monkeypatch.setattr(guarantee, "EVERY", 0.02)
    access = BrokerAccess(site.url, site.environment["COGET_BROKER_TOKEN"], "HERE")
    deadline = Deadline(time.time() + 300)

    async def transfer() -> None:
        held = ReservedFinish(access, deadline, "x")
        sources = (SourceView(site.server.url("x"), "fetching"),)
        seen = Snapshot("x", "fetching", 1.0, done_bytes=RATE, size=len(CONTENT), sources=sources)
        others = asyncio.all_tasks()
        async with held.held(lambda: seen):
            (reporting,) = asyncio.all_tasks() - others
            await held.admit(len(CONTENT))
            await until(lambda: promise(held)["bytes_left"] == len(CONTENT) - RATE)
            site.ann.delete(f"{PROMISES}/{held.number}")
            await asyncio.wait_for(reporting, PATIENCE)  # it ends without an error, and asks nothing more
            assert held.is_over
        assert promise(held)["outcome"] == "given up"

    def promise(held: ReservedFinish) -> dict[str, Any]:
        found: dict[str, Any] = site.ann.get(f"{PROMISES}/{held.number}").json()
        return found

    asyncio.run(transfer())
