"""Tables, files and the page, made from invented runs."""

from dataclasses import replace
from pathlib import Path

from tests.benchmarks.page import page
from tests.benchmarks.race import Copy, Outcome, Run, Sample
from tests.benchmarks.results import LIMIT, Result, beside, goal_is_missed, read, rows, typical, write
from tests.benchmarks.table import show

SIZE = 1_000_000


def run(seconds: float, outcome: Outcome = "ok", moved: int = SIZE) -> Run:
    samples = (Sample(0.0, {"s1": 0}), Sample(seconds, {"s1": moved}))
    said = "" if outcome == "ok" else "no route\nsorry"
    return Run(outcome, seconds, 0.002, 0.1, moved, samples, {"s1": [Copy(0, moved, 0.1, seconds)]}, said)


def result(scenario: str = "hetero", **runs: list[Run]) -> Result:
    return Result(scenario, "cubic", 10.0, SIZE, {"s1": 0.999}, [(5.0, "s1: kill")], runs)


def test_a_row_has_the_median_and_its_spread():
    made = result(coget=[run(10.2), run(10.1), run(11.0, moved=1_010_000)])
    assert rows(made) == [("coget", "10.20", "1.020 [1.010-1.100]", "0.00 %", "2.00", "1 %", "")]


def test_failures_are_shown_and_count_as_infinite_time():
    made = result(
        axel=[run(10.0), run(3.0, "fails"), run(3.0, "fails")], aria2=[run(10.0), run(11.0), run(3.0, "wrong")]
    )
    axel, aria2 = rows(made)
    assert axel[2] == "fails"
    assert axel[-1] == "2 of 3 fails: no route"
    assert aria2[2] == "1.050 [1.000-1.100]"
    assert made.ratio("axel") == float("inf")


def test_late_runs_are_shown_as_longer_than_the_limit():
    (lftp,) = rows(result(lftp=[run(80.0, "late", moved=SIZE // 2)]))
    assert lftp[2] == f"> {LIMIT}"
    assert lftp[-1] == "1 of 1 ended when 50% had gone over the wire"


def test_a_rerun_is_judged_by_its_bytes():
    assert result("rerun", coget=[run(6.0, moved=1_010_000)]).ratio("coget") == 1.01


def test_coget_is_compared_with_the_program_named_by_the_bar():
    assert beside(result("shared", **{"coget": [run(10.1)], "coget-best": [run(10.0)]})) == (
        "compared with coget-best, coget takes 1.010 times as long (+0.10 s)"
    )
    assert beside(result(coget=[run(10.1)], aria2=[run(10.0)])) == ""


def test_results_come_back_with_one_course_and_beside_others(tmp_path: Path):
    file = tmp_path / "results.json"
    write(file, [result("slow", coget=[run(12.0)])])
    write(file, [result(coget=[run(10.1), run(10.3), run(10.2)], aria2=[run(10.0)])])
    hetero, slow = read(file)
    assert (hetero.scenario, slow.scenario) == ("hetero", "slow")
    assert [bool(kept.samples) for kept in hetero.runs["coget"]] == [False, False, True]
    assert typical(hetero.runs["coget"]) == run(10.2)
    assert hetero.runs["aria2"][0].samples == ()
    write(file, [result("slow", coget=[run(13.0)])])
    assert [kept.ratio("coget") for kept in read(file)] == [1.02, 1.3]


def test_terminal_and_page_show_the_same_results():
    made = result(coget=[run(10.1)], aria2=[run(10.4)], axel=[run(10.2, "fails")])
    assert "coget 10.10" in " ".join(show(made).split())
    text = page([made])
    assert "| [hetero](#hetero) | 400/200/100/50 Mbit/s | 1.010 | <= 1.02 | 1.040 (aria2) |" in text
    assert "| coget | 10.10 | 1.010 [1.010-1.010] |" in text
    assert "S1: kill at 5.00 s. Rates of single sources, relative to the schedule: s1 0.999." in " ".join(text.split())
    assert show(replace(made, alone={"s1": 0.9})).splitlines()[3].endswith("s1 0.900: the ideal is uncertain")


def test_the_page_marks_missed_goals():
    text = page([result(coget=[run(10.3)]), result("cross", coget=[run(10.1)], aria2=[run(10.05)]), result("kill")])
    assert "| 1.030, goal missed | <= 1.02 |" in text
    assert "| 1.010, goal missed | faster than every peer |" in text
    assert "| no run counted | <= 1.02 |" in text
    near = {"coget": [run(10.1)], "coget-best": [run(9.95)]}
    assert [goal_is_missed(result(name, **near)) for name in ("shared", "small", "hetero")] == [False, True, False]


def test_coordinates_of_pictures_are_short_and_labels_as_they_were():
    from tests.benchmarks.plots import shortened  # loads matplotlib, which takes half a second

    drawn = '<?xml version="1.0"?>\n  <path d="M 1.2345 6.001 "/><text x="3.25">0.975</text>  \n'
    assert shortened(drawn) == '<?xml version="1.0"?>\n<path d="M 1.2 6 "/><text x="3.25">0.975</text>\n'
