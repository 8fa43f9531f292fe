"""Forecasts in hindsight: they depend on the transfers that had ended at a transfer's start, and on nothing else."""

from dataclasses import replace
from random import Random

import pytest

from predictors import hindsight as module
from predictors.evaluate import replay
from predictors.hindsight import PANEL, Panel, affected, order
from predictors.observation import Observation
from predictors.registry import make

CHEAP = ("last", "running mean", "median of 25", "AR(5)")


def log(count: int = 120, seed: int = 1) -> list[Observation]:
    """Draw overlapping transfers of one link, of which some end at the same moment."""
    chance, at, found = Random(seed), 1e9, []
    for _ in range(count):
        at += chance.expovariate(1 / 30)
        size = int(10 ** chance.uniform(6.1, 9))
        end = max(at + 1, round(at + size / 10 ** chance.gauss(7, 0.5)))
        found.append(Observation("ftp://a", at, end, size, setup_seconds=0.1))
    return sorted(found, key=order)


def hindsight_of(known, rank=0, wanted=None, names=CHEAP):
    wanted = range(len(known)) if wanted is None else wanted
    return {each.number: each.forecasts for each in Panel(False, names).hindsight(known, rank, wanted) if each}


def test_hindsight_agrees_with_walking_forward_with_delayed_feedback():
    known = log(60)
    found = hindsight_of(known, names=PANEL)
    for name in PANEL:
        for observation, forecast in replay(known, make(name)):
            if forecast.rates and forecast.rates.p50 == forecast.rates.p50:
                assert found[known.index(observation)][name] == forecast


def test_the_future_changes_nothing():
    known = log()
    moment = known[70].end
    changed = sorted((replace(each, bytes=each.bytes * 7) if each.end > moment else each for each in known), key=order)
    before, after = hindsight_of(known), hindsight_of(changed)
    early = [i for i, each in enumerate(known) if each.start < moment and each.end <= moment]
    assert len(early) > 50
    assert all(before[i] == after[changed.index(known[i])] for i in early)


def test_hindsight_names_the_leader_of_the_hedge():
    assert {each["hedge"].leader for each in hindsight_of(log(60), names=("hedge",)).values() if each} > {"kernel"}


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 20)
    monkeypatch.setattr(module, "WARM", 10)


def test_forecasts_begin_anew_from_the_newest_earlier_transfers(small_blocks):
    known = log()
    found = hindsight_of(known, names=("running mean",))
    i = next(i for i, each in enumerate(known) if sum(other.end <= each.start for other in known) == 20)
    begun_anew = [each.rate for each in known[10:20]]
    assert found[i]["running mean"].rates.p50 == pytest.approx(sum(begun_anew) / 10)


def test_newest_transfers_alone_give_the_same_forecasts_as_all(small_blocks):
    known = log()
    whole = hindsight_of(known)
    tail = known[60:]
    wanted = list(affected(tail, 60, range(len(tail)), 0.0, most=30))
    assert 20 < len(wanted) <= 30
    assert hindsight_of(tail, 60, wanted) == {i: whole[60 + i] for i in wanted}


@pytest.mark.parametrize("seed", range(5))
def test_only_what_is_affected_changes_when_some_are_known_late(small_blocks, seed):
    known = log(seed=seed)
    late = set(Random(seed).sample(range(len(known)), 7))
    early = [each for i, each in enumerate(known) if i not in late]
    before, after = hindsight_of(early), hindsight_of(known)
    first = min(known[i].end for i in late)
    wanted = set(affected(known, 0, late, first, most=len(known)))
    assert late & wanted
    assert len(wanted) < len(known)
    for i, each in enumerate(known):
        if i not in wanted:
            assert before[early.index(each)] == after[i]


def test_continued_panel_agrees_with_a_new_one_and_learns_each_transfer_once(small_blocks):
    known, learned = log(), []
    one = Panel(False, CHEAP)
    found = {}
    for count in range(10, len(known) + 1, 10):
        wanted = [i for i in range(count) if i not in found and known[i].start >= one.until]
        for each in one.hindsight(known[:count], 0, wanted):
            if each:
                found[each.number] = each.forecasts
            else:
                learned.append(each)
    whole = hindsight_of(known)
    assert len(found) > 100
    assert found == {i: whole[i] for i in found}
    assert len(learned) < 2 * len(known)  # once, and ten before each twenty


def test_a_panel_begins_anew_where_others_were_known_before():
    known = log(60)
    one = Panel(False, CHEAP)
    early = [each for i, each in enumerate(known) if i != 3]
    for _ in one.hindsight(early[:30], 0, [29]):
        pass
    wanted = [len(known) - 1]
    found = [each for each in one.hindsight(known, 0, wanted) if each]
    assert found[0].forecasts == hindsight_of(known, wanted=wanted)[wanted[0]]
