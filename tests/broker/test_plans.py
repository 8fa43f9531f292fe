"""Plans of the broker: the shares that coget would use."""

import time

import pytest

A = "run1:2024/a.root"
RATES = {"cern-1": 100_000_000, "cern-2": 50_000_000, "fnal-1": 10_000_000}


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


async def test_what_cannot_be_planned_says_why(stocked):
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
