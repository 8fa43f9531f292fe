"""Plans of the broker, equal to those of coget.

Plans of files through a network are what the caller says, filled in with what the broker knows.
"""

import time
from fractions import Fraction

import pytest

from coalloc.planner.certificate import check
from coalloc.planner.documents.scenario import scenario
from coalloc.planner.network import LinkKey
from coalloc.planner.results import Certificate, Limit, PlannedPath, TransferPlan

PLANS = "/broker/v1/plans"
MB = 1_000_000
MANY = ["a", "b", *(f"h{i}" for i in range(99))]
NETWORK = {
    "hosts": {"a": {}, "r": {"up": "30 MB/s"}, "b": {"down": "100 MB/s"}},
    "links": {"a -> b": "10 MB/s", "a -> r": "50 MB/s", "r -> b": 50 * MB},
    "files": {"x": {"size": "4 GB", "at": "a", "to": ["b"]}},
}
A = "run1:2024/a.root"
RATES = {"cern-1": 100_000_000, "cern-2": 50_000_000, "fnal-1": 10_000_000}


async def planned(client, body):
    answer = await client.post(PLANS, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def read_back(plan, files):
    """The plan as a value, from what went over the wire."""
    network = scenario({**plan["network"], "files": files})
    proof, ends = plan["certificate"], ("source", "sink", "source_isp", "sink_isp")

    def limit(each):
        if each["kind"] == "link":
            return Limit("link", LinkKey(*(each[end] for end in ends)))
        if each["kind"] in ("up", "down"):
            return Limit(each["kind"], (each["host"], each["isp"]))
        return Limit(each["kind"], each["host"] or each["name"])

    made = TransferPlan(
        plan["method"],
        Fraction(proof["seconds"]),
        None,
        {LinkKey(*(flow[end] for end in ends)): Fraction(flow["bytes"]) for flow in plan["flows"]},
        tuple(PlannedPath(each["file"], tuple(each["hosts"]), each["bytes"]) for each in plan["paths"]),
        plan["reason"],
        Certificate(
            {limit(each): Fraction(each["price"]) for each in proof["limits"]},
            {(each["file"], each["host"]): Fraction(each["bytes"]) for each in proof["origins"]},
            Fraction(proof["tolerance"]),
        ),
    )
    return network, made


async def test_a_network_is_planned_with_a_proof_that_another_checks(admin):
    plan = await planned(admin, NETWORK)
    assert (plan["seconds"], plan["direct_seconds"]) == (100, 400)
    assert "the uplink of r" in plan["reason"]
    assert sum(path["bytes"] for path in plan["paths"]) == 4000 * MB
    problem, made = read_back(plan, NETWORK["files"])
    check(problem.network, problem.demand, made)


async def test_a_plan_is_completed_with_forecasts_and_capacities(broker, stocked):
    now = time.time()
    rates = {("cern-1", "FNAL"): 5 * MB, ("cern-1", "CERN"): 80 * MB, ("cern-2", "FNAL"): 60 * MB}
    for (source, sink), rate in rates.items():
        reports = [
            {
                "id": f"{source}-{sink}-{i}",
                "source": source,
                "sink": sink,
                "started": now - 1000 + 20 * i,
                "ended": now - 990 + 20 * i,
                "bytes": 10 * rate,
            }
            for i in range(30)
        ]
        await stocked.post("/broker/v1/transfers", json=reports)
    endpoint = (await stocked.get("/broker/v1/endpoints/cern-2")).json()
    endpoint.pop("source", None)
    await stocked.put("/broker/v1/endpoints/cern-2", json={**endpoint, "capacity": 40e6})
    wanted = {
        "hosts": {"cern-1": {}, "relay": {"url": "gsiftp://cern-2.example:2811/x"}, "fnal-1": {"storage": "1 TB"}},
        "files": {"x": {"size": "1 GB", "at": "cern-1", "to": "fnal-1"}},
    }
    await planned(stocked, wanted)
    await broker.settled()
    plan = await planned(stocked, wanted)
    assert plan["network"]["hosts"]["relay"]["up"] == "40 MB/s"
    assert plan["network"]["hosts"]["fnal-1"]["storage"] == "1 TB"
    assert len(plan["network"]["links"]) == 6
    assert plan["direct_seconds"] == pytest.approx(1000 / 5, rel=0.2)
    assert plan["seconds"] == pytest.approx(1000 / 45, rel=0.2)
    assert plan["chance"] > 0.99
    given = {**wanted, "links": {"cern-1 -> fnal-1": "400 MB/s"}}
    short = await planned(stocked, given)
    assert (short["method"], short["seconds"]) == ("direct", 1000 / 400)
    assert short["certificate"]["caution"] == {"direct": 0, "relayed": None}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        ({"links": {"a -> c": "1 MB/s"}}, 422, "names the unknown host 'c'"),
        ({"links": {"a -> b": "fast"}}, 422, "links, a -> b: 'fast' is not understood"),
        ({"links": {"b -> a": "1 MB/s"}}, 422, "there is no path from a to b"),
        ({"files": {}}, 422, "files"),
        ({"files": {"x": {"size": 1, "at": "a", "to": "z"}}}, 422, "there is no host 'z'"),
        ({"hosts": {"a": {"url": "ftp://[::1"}, "b": {}}, "links": {}}, 422, "is not an address of a server"),
        ({"hosts": {"a": {"url": "ftp://a b"}, "b": {"url": "ftp://b"}}, "links": {}}, 422, "is not an address of"),
        ({"strategy": "adaptive"}, 422, "strategy"),
        ({"hosts": {f"h{i}": {} for i in range(201)}}, 422, "200"),
        ({"hosts": {each: {"url": f"ftp://{each}"} for each in MANY}, "links": {}}, 413, "100 at most"),
        ({"files": {f"f{i}": {"size": 1, "at": ["a"] * 2, "to": "b"} for i in range(2001)}}, 422, "2000"),
        ({"hosts": {"a": {"up": 10**400}, "b": {}}}, 422, "too large"),
        ({"hosts": [1]}, 422, "an object"),
    ],
)
async def test_networks_that_are_invalid_or_too_large_are_refused(admin, change, status, message):
    answer = await admin.post(PLANS, json={**NETWORK, **change})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert message in error["message"] + error["remedy"]


async def test_planning_requires_only_the_reader_role(broker):
    assert (await (await broker.client("reader")).post(PLANS, json=NETWORK)).status_code == 200
    assert (await broker.with_headers({}).post(PLANS, json=NETWORK)).status_code == 401


async def test_a_plan_over_its_limits_is_refused_and_the_next_one_is_made(broker, admin):
    apart, budget = broker.factory.working, broker.factory.working.budget
    for change, limit in ({"seconds": 0.05}, "0.05 s"), ({"memory": 40 << 20}, "40 MB of memory"):
        await apart.close()
        apart.budget = budget._replace(**change)
        answer = await admin.post(PLANS, json=NETWORK)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large"), answer.text
        assert f"the plan would take more than {limit}" in answer.text
        apart.budget = budget
        await planned(admin, NETWORK)


async def test_shares_follow_the_rates_and_the_time_has_bounds(broker, stocked):
    now = time.time()
    for name, rate in RATES.items():
        reports = [
            {
                "id": f"{name}-{i}",
                "source": name,
                "sink": "HERE",
                "started": now - 1000 + 20 * i,
                "ended": now - 990 + 20 * i,
                "bytes": 10 * rate + 1000 * i,
            }
            for i in range(40)
        ]
        await stocked.post("/broker/v1/transfers", json=reports)
    wanted = {"name": A, "sink": "HERE"}
    await stocked.post("/broker/v1/plans", json=wanted)
    await broker.settled()
    plan = (await stocked.post("/broker/v1/plans", json=wanted)).json()
    assert sum(share["bytes"] for share in plan["shares"]) == plan["size"] == 1_000_000_000
    assert [share["endpoint"] for share in plan["shares"]] == ["cern-1", "cern-2", "fnal-1"]
    assert plan["shares"][0]["bytes"] > plan["shares"][1]["bytes"] > plan["shares"][2]["bytes"]
    assert plan["seconds"] == pytest.approx(1e9 / sum(RATES.values()), rel=0.2)
    low, high = plan["seconds_p10_p90"]
    assert low <= high
    single = (await stocked.post("/broker/v1/plans", json={**wanted, "strategy": "single"})).json()
    assert single["seconds"] == pytest.approx(1e9 / 100e6, rel=0.2)


async def test_an_impossible_plan_is_refused_with_the_reason(stocked):
    answer = await stocked.post("/broker/v1/plans", json={"name": "none"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    await stocked.put("/broker/v1/datasets/lone", json={"name": "lone"})
    answer = await stocked.post("/broker/v1/plans", json={"name": "lone"})
    assert "no available replica" in answer.json()["error"]["message"]
    await stocked.put("/broker/v1/replicas", json={"dataset": "lone", "endpoint": "cern-1"})
    answer = await stocked.post("/broker/v1/plans", json={"name": "lone"})
    assert (answer.status_code, "size" in answer.json()["error"]["message"]) == (409, True)
    answer = await stocked.post("/broker/v1/plans", json={"name": A, "strategy": "magic"})
    assert answer.status_code == 422
