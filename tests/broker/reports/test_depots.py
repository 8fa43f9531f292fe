"""The report on depots: gains over them, their cost, and advice that the numbers carry."""

import random
import time
from collections.abc import Iterable, Sequence

import pytest

from broker.models.depots import NewDepot, ReportedRoute, RouteDay
from broker.reports import depots
from broker.reports.archive import Scope
from broker.reports.depot_advice import (
    Advice,
    Moved,
    SlowDepot,
    SlowPair,
    UnmeasuredDepot,
    UnusedGain,
    advice,
    findings,
)
from broker.reports.depot_gains import RouteGain, compared, cost_of, matched, records, spread_of, usage_of
from broker.reports.depots import DepotsQuery, make
from broker.storage.depots import DepotStore
from broker.storage.routes import RouteGroup, RouteStore, sampled
from coalloc.history.route_values import MeasuredRoute
from coalloc.model.routes import RouteUse
from tests.broker.reports.filling import DAY, TODAY, counted, fact, report, table, transfer

MIB = 1 << 20
A, B = "a.example:4000", "b.example:4000"
HOSTILE = "<script>alert(1)</script>"
ALL = Scope(None)
SIX = range(0, 18, 3)
"""Six days within two weeks or more: just enough for a verdict."""


def day(number: int, route: str, *seconds: float, reporter: str = "ann", site: str = "S", host: str = "h") -> RouteDay:
    uses = len(seconds)
    return RouteDay(reporter, site, "ftp", host, route, number, uses, uses * MIB, seconds)


def both(numbers: Iterable[int], direct: float, over: float, route: str = A, **more: str) -> list[RouteDay]:
    """Return days on which both routes were used, with these seconds."""
    return [day(n, name, s, **more) for n in numbers for name, s in (("none", direct), (route, over))]


def gains(days: Iterable[RouteDay]) -> list[RouteGain]:
    return compared(matched(days))


def test_a_depot_that_is_faster_on_each_of_six_days_is_clearly_faster():
    (gain,) = gains(both(SIX, 3.0, 2.0))
    assert (gain.gain, gain.interval, gain.p) == (pytest.approx(1.5), pytest.approx((1.5, 1.5)), 0.03125)
    assert (gain.days, gain.won, gain.lost, gain.reporters, gain.verdict) == (6, 6, 0, ("ann",), "faster")
    (gain,) = gains(both(SIX, 2.0, 3.0))
    assert gain.verdict == "slower"


def test_five_days_give_an_unclear_verdict():
    (gain,) = gains(both(range(5), 3.0, 2.0))
    assert (gain.gain, gain.interval, gain.p, gain.verdict) == (pytest.approx(1.5), None, None, "unclear")


def test_only_days_with_both_routes_count():
    days = [*both([1], 3.0, 2.0), day(2, "none", 9.0), day(3, A, 0.1), day(4, "none"), day(4, A, 0.1)]
    days += [day(5, "none", 9.0), day(5, A, 0.1, reporter="bob"), day(6, "none", 9.0), day(6, A, 0.1, site="T")]
    (gain,) = gains(days)
    assert (gain.days, gain.gain) == (1, pytest.approx(1.5))


def test_many_uses_of_a_day_are_one_observation():
    (gain,) = gains([day(1, "none", *[3.0] * 50), day(1, A, *[2.0] * 50), *both([2], 1.0, 1.0)])
    assert (gain.days, gain.won, gain.lost) == (2, 1, 0)


def test_days_that_span_less_than_two_weeks_are_too_few():
    assert gains(both([*range(12), 12], 3.0, 2.0))[0].p is None
    assert gains(both([*range(12), 13], 3.0, 2.0))[0].p is not None
    (gain,) = gains(both(range(6), 3.0, 2.0))
    assert (gain.days, gain.interval, gain.p, gain.verdict) == (6, None, None, "unclear")


def test_a_liar_with_many_days_does_not_decide_about_a_pair():
    few = both(range(14), 2.0, 4.0, reporter="ann")
    for direct, over in ((100.0, 1.0), (1.0, 100.0)):
        liar = both(range(365), direct, over, reporter="liar")
        assert gains(few)[0].verdict == "slower"
        (gain,) = gains([*few, *liar])
        assert gain.verdict == ("slower" if over > direct else "unclear")
        (gain,) = gains([*few, *both(SIX, 2.0, 4.0, reporter="bob"), *liar])
        assert (gain.verdict, gain.gain) == ("slower", pytest.approx(0.5))
        low, high = gain.interval
        assert low <= 0.5 <= high


def test_a_reporter_with_few_days_has_a_vote_too():
    (gain,) = gains([*both(range(28), 1.0, 50.0, reporter="liar"), *both(range(2), 1.0, 2.0, reporter="ann")])
    assert (gain.p, gain.interval, gain.verdict) == (None, None, "unclear")


def test_a_daily_liar_makes_no_verdict_where_two_others_measure_equal_routes():
    wrong, draw = 0, random.Random(11)
    for _ in range(200):
        days = both(range(28), 100.0, 1.0, reporter="liar")
        for name in ("ann", "bob"):
            days += [
                day(n, route, draw.lognormvariate(0, 0.5), reporter=name)
                for n in range(0, 28, 3)
                for route in ("none", A)
            ]
        wrong += gains(days)[0].verdict != "unclear"
    assert wrong <= 0.06 * 200  # one of two honest users is wrong, in the direction of the liar


def test_invented_pairs_do_not_hide_the_others():
    honest = [each for n in range(3) for each in both(range(20), 3.0, 2.0, reporter=f"user{n}", host=f"real{n}")]
    for direct, over in ((2.0, 1.9), (1.0, 50.0), (1.0, 1.0 + 1e-9)):
        made_up = [each for n in range(2000) for each in both(SIX, direct, over, reporter="liar", host=f"h{n}")]
        found = [each for each in gains([*honest, *made_up]) if each.pair.host.startswith("real")]
        assert [each.verdict for each in found] == ["faster"] * 3


def test_a_reporter_of_a_thousand_pairs_has_one_vote_about_a_depot():
    made_up = [each for n in range(1000) for each in both(range(28), 1.0, 50.0, reporter="liar", host=f"h{n}")]
    honest = [
        each
        for n, name in enumerate(("ann", "bob", "cleo"))
        for each in both(range(28), 3.0, 2.0, reporter=name, host=f"real{n}")
    ]
    found = gains([*made_up, *honest])
    spread = spread_of(found)
    assert spread.quartiles[1:] == pytest.approx((1.5, 1.5))
    assert spread.shares == pytest.approx({"faster": 0.75, "unclear": 0.0, "slower": 0.25})
    assert spread.counts == {"faster": 3, "unclear": 0, "slower": 1000}
    by_depot = records([*made_up, *honest], matched([*made_up, *honest]), found, [A], 9)
    assert not [each for each in findings(by_depot, found, {}, 3) if isinstance(each, SlowDepot)]


def test_absurd_times_are_limited():
    days = [*both(SIX, 1e15, 0.0), *both(SIX, 0.0, 1e15, route=B, host="i")]
    first, second = gains(days)
    assert (first.gain, second.gain) == (pytest.approx(100), pytest.approx(0.01))
    assert cost_of(matched(days)).lost_seconds <= 6 * 60


def test_equal_routes_are_unclear_at_the_promised_rate():
    clear = 0
    for seed in range(60):
        draw = random.Random(seed)
        days = [
            day(n, route, *(draw.lognormvariate(0, 0.5) for _ in range(draw.randint(1, 4))), host=f"h{pair}")
            for pair in range(20)
            for n in range(20)
            for route in ("none", A)
        ]
        clear += any(each.verdict != "unclear" for each in gains(days))
    assert clear <= 7  # of 60, 5 % and chance


def test_an_interval_has_the_true_gain_as_often_as_promised():
    draw, within = random.Random(7), 0
    means = {"none": 1.5, A: 1.0}
    for _ in range(300):
        days = [day(n, name, means[name] * draw.lognormvariate(0, 0.4)) for n in range(15) for name in means]
        low, high = gains(days)[0].interval
        within += low <= 1.5 <= high
    assert within >= 0.92 * 300


def test_the_order_of_the_uses_does_not_matter():
    draw = random.Random(3)
    days = [
        day(n, route, draw.random(), draw.random(), reporter=who, host=host)
        for n in range(8)
        for route in ("none", A, B, f"{A},{B}")
        for who in ("ann", "bob", "cleo")
        for host in ("h", "i")
    ]
    seen = []
    for _ in range(5):
        draw.shuffle(days)
        found = gains(days)
        by_depot = records(days, matched(days), found, [B], 5)
        seen.append((found, spread_of(found), cost_of(matched(days)), list(by_depot), by_depot[A].spread))
    assert all(each == seen[0] for each in seen)


def test_a_route_over_two_depots_counts_for_both():
    days = both(SIX, 3.0, 2.0, route=f"{A},{B}")
    found = records(days, matched(days), gains(days), [B, "c.example:4000"], 5)
    assert list(found) == [B, "c.example:4000", A]
    assert found[A] == found[B]
    assert found[A].usage == usage_of([each for each in days if each.route != "none"])
    assert (found["c.example:4000"].usage.uses, found["c.example:4000"].spread) == (0, None)


def test_uses_that_were_slower_cost_time():
    cost = cost_of(matched([day(1, "none", 2.0), day(1, A, 1.0, 1.5, 5.0), day(2, A, 9.0)]))
    assert cost == pytest.approx((2, 1.5, 1, 3.0))


def test_unknown_depots_reported_by_the_most_users_are_kept():
    days = [day(1, f"fake{n}.example:4000", *[1.0] * 9, reporter="liar") for n in range(50)]
    days += [day(1, A, 1.0, reporter=who) for who in ("ann", "bob")]
    assert next(iter(records(days, [], [], [], 2))) == A


def advised(
    days: list[RouteDay], moved: dict[tuple[str, str], Moved], registered: Sequence[str] = (A, B)
) -> list[Advice]:
    found = gains(days)
    by_depot = records(days, matched(days), found, registered, 0)
    return [advice(each, {A: "depot-a", B: "depot-b"}, admin=True) for each in findings(by_depot, found, moved, 3)]


def test_findings_match_the_measurements():
    hosts = [f"h{n}" for n in range(6)]
    slow = [each for host in hosts[:5] for each in both(range(20), 2.0, 3.0, route=B, host=host)]
    slow += both(range(20), 2.0, 1.0, route=B, host="h5")
    fast = both(range(20), 2.0, 1.5, host="h5") + both(range(20), 2.0, 3.0, host="h0")
    moved = {("S", "ftp://h5"): Moved(120, 10**12, 10**6)}
    rows = advised([*slow, *fast], moved, [A, B, "c.example:4000"])
    assert [each.action for each in rows] == [
        "Leave depot-b out of --via, or remove it from the broker.",
        "Use --via h0=none at S, or another depot.",
        "Add depot-a to config.toml at S, for ftp://h5.",  # depot-b is faster there, but to be left out
        "Measure c.example:4000 beside the direct route: run coget probe --via auto daily.",
    ]
    assert "5 of 6 pairs, as measured by 1 user." in rows[0].reason
    assert "1.5 times as long" in rows[1].reason
    assert (
        "1.3 times as fast there, as measured by 1 user, but 0.0001 % of the bytes of 120 transfers" in rows[2].reason
    )


def test_a_depot_that_is_faster_for_most_pairs_is_not_left_out():
    slow = [
        each for n in range(3) for each in both(range(20), 2.0, 3.0, reporter=f"user{n}", host=f"slow{n}", site=f"S{n}")
    ]
    fast = [each for n in range(17) for each in both(range(20), 3.0, 2.0, reporter="ann", host=f"fast{n}")]
    rows = advised([*slow, *fast], {}, [A])
    assert [each.action for each in rows] == [f"Use --via slow{n}=none at S{n}, or another depot." for n in range(3)]
    rows = advised(slow, {}, [A])
    assert [each.action for each in rows] == ["Leave depot-a out of --via, or remove it from the broker."]
    assert "3 of 3 pairs, as measured by 3 users." in rows[0].reason


def test_instead_of_a_slow_depot_the_one_that_is_faster_there_is_advised():
    days = both(range(20), 3.0, 4.5) + both(range(20), 3.0, 2.0, route=B)
    (row,) = advised(days, {("S", "ftp://h"): Moved(120, 10**12, 0)})
    assert row.action == "Use depot-b instead of depot-a at S, for ftp://h."
    assert "Over depot-a, it takes 1.5 times as long as directly" in row.reason
    assert "Over depot-b, it is 1.5 times as fast" in row.reason


def test_a_reporter_of_many_invented_sites_does_not_fill_the_advice():
    moved, days = {}, []
    for n in range(50):
        days += both(range(30), 100.0, 1.0, reporter="liar", site=f"fake{n}")
        days += both(range(30), 1.0, 100.0, reporter="liar", site=f"fake{n}", host="i", route=B)
        moved[f"fake{n}", "ftp://h"] = Moved(10**6, 10**12, 0)
    for name in ("ann", "bob"):
        days += both(range(20), 3.0, 2.0, reporter=name) + both(range(20), 2.0, 3.0, reporter=name, route=B, host="i")
    honest = both(range(20), 3.0, 2.0, reporter="cleo", site="T")
    for name in ("ann", "bob", "cleo"):
        honest += [each for host in "jk" for each in both(range(20), 3.0, 2.0, reporter=name, route=B, host=host)]
    moved |= {("S", "ftp://h"): Moved(120, 10**12, 0), ("T", "ftp://h"): Moved(120, 10**12, 0)}
    rows = advised([*days, *honest], moved)
    assert [each.action for each in rows if "fake" not in each.action] == [
        "Use --via i=none at S, or another depot.",
        "Add depot-a to config.toml at S, for ftp://h.",
        "Add depot-a to config.toml at T, for ftp://h.",
    ]
    assert rows[0].action == "Use --via i=none at S, or another depot."
    assert len(rows) == 3 + 2 * 3


def test_a_liar_does_not_hide_advice_of_others_for_the_same_places():
    days, moved = [], {}
    for n in range(5):
        days += both(range(20), 3.0, 2.0, reporter=f"user{n}", site=f"S{n}")
        days += both(range(30), 60.0, 0.1, reporter="liar", site=f"S{n}", route=B)
        moved[f"S{n}", "ftp://h"] = Moved(120, 10**12, 0)
    rows = advised(days, moved)
    assert sorted(each.action.partition(" at ")[2] for each in rows) == [f"S{n}, for ftp://h." for n in range(5)]


def test_unregistered_depots_get_no_advice():
    days = both(range(20), 2.0, 3.0, route=f"{A},{B}") + both(range(20), 3.0, 2.0, route=B, host="i")
    assert advised(days, {("S", "ftp://i"): Moved(120, 10**12, 0)}, [A]) == []


def test_unclear_measurements_and_little_use_advise_no_change():
    days = both(range(5), 2.0, 3.0, route=B)  # too few days
    days += [each for n in range(2) for each in both(range(20), 2.0, 1.9, host=f"h{n}")]  # too small a gain
    found = gains(days)
    by_depot = records(days, matched(days), found, [A, B], 5)
    busy, used = {("S", "ftp://h"): Moved(120, 10**12, 0)}, {("S", "ftp://h0"): Moved(120, 10**6, 10**6)}
    for moved in (busy, used):
        assert findings(by_depot, found, moved, 3) == [UnmeasuredDepot(B, 5, 5)]
    days = both(range(20), 3.0, 1.0)
    large = gains(days)
    by_depot = records(days, matched(days), large, [A], 5)
    for moved in (Moved(9, 10**12, 0), Moved(99, 10**6, 2 * 10**5), Moved(99, 0, 0)):
        assert findings(by_depot, large, {("S", "ftp://h"): moved}, 3) == []
    assert [type(each) for each in findings(by_depot, large, {("S", "ftp://h"): Moved(10, 10**12, 0)}, 3)] == [
        UnusedGain
    ]


def test_only_an_admin_is_advised_to_remove_a_depot():
    slow = SlowDepot(A, 5, 6, 2)
    assert "remove" in advice(slow, {A: "depot-a"}, admin=True).action
    assert advice(slow, {A: "depot-a"}, admin=False) == Advice(
        "Leave depot-a out of --via.",
        "It is clearly slower than the direct route for 5 of 6 pairs, as measured by 2 users.",
    )
    (pair,) = gains(both(SIX, 1.0, 2.0, site=""))
    assert advice(SlowPair(pair, None), {}, admin=True).action == "Use --via h=none, or another depot."


def reported(ended: float, route: str, seconds: float, host: str = "ftp.example", **more: object) -> ReportedRoute:
    use = {"bytes": 10**6, "seconds": 1.0, "sessions": 1, "beginning": MIB, "beginning_seconds": seconds}
    return ReportedRoute.model_validate(
        {"scheme": "ftp", "host": host, "ended": ended, "route": route, "opening_seconds": 0.0, **use, **more}
    )


async def store(broker, routes: Iterable[ReportedRoute], reporter: str = "a-admin", site: str = "CERN") -> None:
    async with broker.factory.database.write() as connection:
        await RouteStore(connection).add(reporter, site, list(routes))


async def used(broker, days: int, direct: float, over: float, route: str = A, every: int = 1, **more: str) -> None:
    """Store a use of both routes on some days, with this number of days between two of them."""
    reporter, site = more.pop("reporter", "a-admin"), more.pop("site", "CERN")
    ends = [TODAY - DAY * every * n + 60 for n in range(days)]
    pairs = [reported(end, name, took, **more) for end in ends for name, took in (("none", direct), (route, over))]
    await store(broker, pairs, reporter, site)


async def register(broker, name: str = "depot-a", place: str = A) -> None:
    host, _, port = place.rpartition(":")
    async with broker.factory.database.write() as connection:
        await DepotStore(connection).put(NewDepot(name=name, site="CERN", host=host, port=int(port)))


async def shown(broker, scope: Scope = ALL, **wanted: object):
    await counted(broker.factory.database)
    return await make(broker.factory.archive, scope, DepotsQuery(**wanted))


async def test_the_report_of_an_empty_broker_explains_how_to_get_data(broker):
    page = await shown(broker)
    for name in ("next", "gains"):
        assert (table(page, name).rows, "coget probe --via auto" in table(page, name).note) == ([], True)
    assert [figure.spec for figure in page.figures] == [{}, {}]
    assert fact(page, "Measured uses of routes").value == 0
    assert fact(page, "Gain of all depots").value is None


@pytest.mark.usefixtures("noon")
async def test_the_page_has_the_gain_and_cost_of_each_depot(stocked, broker):
    await register(broker)
    await used(broker, 10, 3.0, 2.0, every=2)
    await used(broker, 7, 2.0, 3.0, route=B, reporter="bob", every=3)
    await store(broker, [reported(TODAY, A, 1.9, beginning=1000)])  # too small to show a time
    page = await shown(broker)
    first, second = table(page, "uses").records()
    assert (first["depot"], first["registered"], first["uses"], first["users"], first["bytes"]) == (
        *("depot-a", True, 11, 1),
        11 * 10**6,
    )
    assert (second["depot"], second["registered"], second["share"]) == (B, False, pytest.approx(7 / 35))
    first, second = table(page, "gains").records()
    assert (first["gain"], first["faster"], first["saved"], first["lost"]) == pytest.approx((1.5, 1.0, 10.0, 0.0))
    assert (second["gain"], second["slower"], second["saved"], second["lost"]) == pytest.approx((2 / 3, 1.0, 0.0, 7.0))
    (best,), (worst,) = table(page, "best").records(), table(page, "worst").records()
    assert (best["site"], best["server"], best["route"], best["verdict"]) == (
        *("CERN", "ftp://ftp.example", "depot-a"),
        "faster",
    )
    assert (worst["route"], worst["verdict"], worst["days"], worst["users"]) == (B, "slower", 7, 1)
    gain_figure, bytes_figure = page.figures
    assert gain_figure.spec
    assert "2 rows, 1 faster, 1 slower" in gain_figure.alternative
    assert bytes_figure.table.rows == [("depot-a", 11 * 10**6), (B, 7 * 10**6)]


@pytest.mark.usefixtures("noon", "unscored")
async def test_a_site_that_uses_no_depot_is_advised_which_would_be_faster(stocked, broker, admin):
    await register(broker)
    await used(broker, 10, 3.0, 2.0, every=2)
    now = time.time()
    moved = [transfer(i, now - i, source="ftp://ftp.example:2121", sink="CERN") for i in range(6)]
    moved += [transfer(f"b{i}", now - i, source="ftp://ftp.example", sink="CERN") for i in range(6)]
    moved += [transfer(f"c{i}", now - i, source="ftp://ftp.example.org", sink="CERN") for i in range(50)]
    await report(admin, moved)
    (row,) = table(await shown(broker), "next").records()
    assert row["action"] == "Add depot-a to config.toml at CERN, for ftp://ftp.example."
    assert "of 12 transfers" in row["reason"]


@pytest.mark.usefixtures("noon")
async def test_users_see_their_own_measurements_and_no_unused_depots(stocked, broker):
    await register(broker)
    await register(broker, "depot-b", B)
    await used(broker, 8, 3.0, 2.0, reporter="ann")
    await used(broker, 8, 3.0, 2.0, reporter="bob", route=B, host="other.example")
    page = await shown(broker, Scope("ann"))
    assert [each["depot"] for each in table(page, "uses").records()] == ["depot-a"]
    assert [each["server"] for each in table(page, "best").records()] == ["ftp://ftp.example"]
    assert fact(page, "Measured uses of routes").value == 16
    assert len(table(await shown(broker), "best").rows) == 2


@pytest.mark.usefixtures("noon")
async def test_ignored_reporters_count_only_for_themselves(stocked, broker, admin):
    await used(broker, 8, 3.0, 2.0, reporter="liar")
    await used(broker, 8, 3.0, 1.0, reporter="ann")
    (await admin.put("/broker/v1/ignored-subjects", json={"subject": "liar"})).raise_for_status()
    assert fact(await shown(broker), "Gain of all depots").value == pytest.approx(3.0)
    assert fact(await shown(broker, Scope("liar")), "Gain of all depots").value == pytest.approx(1.5)


@pytest.mark.usefixtures("noon")
async def test_the_period_is_in_whole_days(stocked, broker):
    await used(broker, 100, 3.0, 2.0)
    for wanted, days in (({}, 29), ({"days": 90}, 91), ({"days": 0}, 100), ({"since": TODAY - DAY, "until": TODAY}, 1)):
        assert fact(await shown(broker, **wanted), "Measured uses of routes").value == 2 * days, wanted


def test_a_sample_has_a_fair_share_of_each_reporter():
    groups = [RouteGroup("liar", "ftp", f"fake{n}", 2) for n in range(10_000)]
    groups += [RouteGroup("flood", "ftp", "h", 20_000)]
    honest = [RouteGroup(f"user{n}", "ftp", f"h{host}", 56) for n in range(10) for host in range(5)]
    kept = sampled([*groups, *honest], 30_000)
    assert set(honest) <= set(kept)
    assert 10_000 < sum(each.uses for each in kept if each.reporter == "liar") <= 30_000 - 50 * 56
    assert sum(each.uses for each in kept) <= 30_000
    assert sampled(reversed(groups), 3000) == sampled(groups, 3000)


def test_a_sample_of_small_size_has_the_smallest_groups():
    groups = [RouteGroup("ann", "ftp", "h", 90), RouteGroup("bob", "ftp", "h", 80), RouteGroup("bob", "ftp", "i", 60)]
    assert sampled(groups, 100) == [groups[2]]


@pytest.mark.usefixtures("noon")
async def test_a_sample_has_all_days_of_its_pairs(stocked, broker, monkeypatch):
    await register(broker)
    await register(broker, "depot-b", B)
    for n in range(20):
        await used(broker, 20, 3.0, 2.0, host=f"h{n}.example")
    monkeypatch.setattr(depots, "MOST", 200)
    page = await shown(broker)
    count = fact(page, "Measured uses of routes")
    assert (count.value, count.note) == (200, "a sample of 800: some servers of each user, with all their days")
    assert "those of the sample" in table(page, "uses").note
    assert table(page, "gains").records()[0]["gain"] == pytest.approx(1.5)
    assert [(each["days"], each["verdict"]) for each in table(page, "best").records()] == [(20, "faster")] * 5
    assert not table(page, "next").rows  # others may have measured depot-b


@pytest.mark.usefixtures("noon", "unscored")
async def test_transfers_before_a_reporters_oldest_measurement_do_not_count(stocked, broker, admin):
    await register(broker)
    await used(broker, 16, 3.0, 2.0)
    now = time.time()
    await report(admin, [transfer(i, now - DAY * 16 - i, source="ftp://ftp.example", sink="CERN") for i in range(20)])
    await report(admin, [transfer(f"n{i}", now - i, source="ftp://ftp.example", sink="CERN") for i in range(9)])
    assert not table(await shown(broker), "next").rows
    await report(admin, [transfer("last", now - 9, source="ftp://ftp.example", sink="CERN")])
    (row,) = table(await shown(broker), "next").records()
    assert "of 10 transfers" in row["reason"]
    until = TODAY // DAY * DAY  # the transfers of the day that begins then do not count
    assert not table(await shown(broker, until=until, days=28), "next").rows


@pytest.mark.usefixtures("noon", "unscored")
async def test_bytes_over_depots_are_counted_in_the_same_period_as_transfers(stocked, broker, admin):
    await register(broker)
    await used(broker, 16, 3.0, 2.0)
    now = time.time()
    await report(admin, [transfer(i, now - i, source="ftp://ftp.example", sink="CERN") for i in range(10)])
    await store(broker, [reported(now - 1, A, 2.0, bytes=9 * 10**8)])
    (row,) = table(await shown(broker), "next").records()
    assert "9.15 % of the bytes" in row["reason"]
    await store(broker, [reported(now - 2, A, 2.0, bytes=9 * 10**8)])
    assert not table(await shown(broker), "next").rows


@pytest.mark.usefixtures("noon")
async def test_absurd_and_hostile_values_do_no_harm(stocked, broker, admin, sitting, root):
    await used(broker, 8, 0.0, 9e8, site=HOSTILE, reporter="liar", every=2)
    huge = [reported(TODAY - n, A, 1.0, bytes=2**63 - 1, beginning=1, host=f"h{n}.example") for n in range(4)]
    await store(broker, [*huge, reported(TODAY, A, 1.0, beginning=0)], reporter="liar")
    assert table(await shown(broker), "uses").records()[0]["bytes"] > 2**64
    answer = await admin.get("/broker/v1/reports/depots")
    assert answer.status_code == 200, answer.text
    page = await sitting.login(root, "/reports/depots")
    assert (page.status, HOSTILE in page.text, "&lt;script&gt;" in page.text) == (200, False, True)
    drawing = await sitting.client.get("/reports/depots/gains-by-pair.svg")
    assert (drawing.status_code, "<script" in drawing.text) == (200, False)


async def test_the_database_computes_times_as_python_does(broker):
    draw = random.Random(5)
    kinds = [(draw.randint(0, 2 * MIB), 4 * draw.random(), draw.random()) for _ in range(200)]
    routes = [
        reported(TODAY + i, A, took, beginning=size, opening_seconds=opening, host=f"h{i}.example")
        for i, (size, took, opening) in enumerate(kinds)
    ]
    await store(broker, routes)
    async with broker.factory.database.read() as connection:
        found = {each.host: each.seconds for each in (await RouteStore(connection).used(None, 0, 1e11, 10**6)).days}
        newest = await RouteStore(connection).newest(list(found), "a-admin", "", 0)
    expected: dict[str, tuple[float, ...]] = dict.fromkeys(found, ())
    for each in newest["a-admin"]:
        use = RouteUse(*each.use)
        expected[each.host] = (MeasuredRoute("ftp", each.host, each.ended, use).small_seconds,)
    assert 0 < len(newest["a-admin"]) < 200
    assert found.keys() == expected.keys()
    for host, seconds in found.items():
        assert seconds == pytest.approx(expected[host])
