"""A transfer as a decision, in the form that brokers receive."""

import pytest

from coalloc.broker_client.decision import MOST, decision, worth_reporting
from coalloc.model.forecasts import Estimate
from coalloc.model.reports import PartialCopy, SourceReport, TransferReport

MB = 1_000_000


def report(*sources: SourceReport, size: int = 10 * MB, resumed: int = 0) -> TransferReport:
    return TransferReport("x", size, 3.0, 1.0, "adaptive", resumed, 0, None, "given", "why\tnot", sources)


def document_of(*sources: SourceReport, error: str | None = None, **more: int):
    return decision(report(*sources, **more), error, 1e9, "k", "download", "x.root", "HERE")


def copies(count: int, *endings: str) -> tuple[PartialCopy, ...]:
    """Copies of a megabyte each, one per second, whose first byte comes after a tenth of it."""
    return tuple(
        PartialCopy(i * MB, (i + 1) * MB, MB, i + 0.5, i + 0.6, i + 1.4, i + 1.5, (*endings, *["whole"] * count)[i])
        for i in range(count)
    )


@pytest.mark.parametrize(
    ("size", "resumed", "sources", "worth"),
    [(9 << 20, 0, 1, True), (9 << 20, 2 << 20, 1, False), (2 << 20, 0, 2, True), (100_000, 0, 3, False)],
)
def test_small_transfers_are_not_worth_a_report(size, resumed, sources, worth):
    assert worth_reporting(report(*[SourceReport("ftp://a/x")] * sources, size=size, resumed=resumed)) is worth


def test_document_contains_forecasts_plans_and_results():
    expected = Estimate(0.2, 5e6, "hedge", (4e6, 6e6))
    used = SourceReport(
        "ftp://ann:secret@A.example:21/x?token=secret", 2 * MB, 2.0, MB, 2, setup_seconds=0.1, outcome="ok",
        copies=copies(2), ready_seconds=0.3, estimate=expected, planned_bytes=3 * MB,
    )  # fmt: skip
    document = document_of(used, SourceReport("gsiftp://b/x"))
    first, second = document["sources"]
    assert (first["source"], first["url"]) == ("ftp://a.example", "ftp://ann@A.example:21/x")
    assert first["rate"] == {"p10": 4e6, "p50": 5e6, "p90": 6e6}
    assert (first["planned_bytes"], first["bytes"]) == (3 * MB, 2 * MB)
    assert (first["start_seconds"], first["flow_seconds"]) == (pytest.approx(0.4), pytest.approx(1.6))
    assert (second["outcome"], second["rate"], second["start_seconds"]) == ("unused", None, None)
    assert (document["outcome"], document["rationale"], document["fetch_seconds"]) == ("ok", r"why\tnot", 2.4)
    assert [each["ending"] for each in document["ranges"]] == ["whole", "whole"]


def test_flow_time_of_a_brief_copy_includes_its_setup():
    brief = PartialCopy(0, MB, MB, 0.5, 0.9, 0.91, 0.92, "whole")
    (only,) = document_of(SourceReport("ftp://a/x", MB, 0.42, ready_seconds=0.5, copies=(brief,)))["sources"]
    assert (only["start_seconds"], only["flow_seconds"]) == (0.5, 0.42)


def test_excess_ranges_are_merged_without_loss():
    many, few = copies(7 * MOST, "whole", "failed"), copies(3)
    document = document_of(SourceReport("ftp://a/x", copies=many), SourceReport("ftp://b/x", copies=few))
    ranges = document["ranges"]
    assert len(ranges) <= MOST
    assert document["range_count"] == sum(each["count"] for each in ranges) == 7 * MOST + 3
    assert sum(each["bytes"] for each in ranges) == (7 * MOST + 3) * MB
    assert (ranges[0]["ending"], ranges[1]["ending"], ranges[0]["asked"]) == ("failed", "whole", 0.5)
    assert ranges[0]["end"] == ranges[1]["start"]
    assert {each["source"] for each in ranges} == {0, 1}


def test_error_is_reported_in_one_bounded_line():
    document = document_of(SourceReport("ftp://a/x"), error="no\nsource " + "x" * 1000)
    assert (document["outcome"], len(document["error"])) == ("failed", 500)
    assert document["error"].isprintable()
