"""The documents of --json, whose keys are the contract."""

from coalloc.display import json
from coalloc.errors import TransferFailed
from coalloc.model.checksums import Checksum
from coalloc.model.forecasts import Estimate
from coalloc.model.plans import Plan, PlannedShare
from coalloc.model.reports import Results
from tests.support.coget import REPORT_KEYS, SOURCE_KEYS
from tests.support.snapshots import report, url


def test_one_file_is_one_object_with_the_keys_of_the_contract():
    made = report(checksum=Checksum("md5", "ab" * 16), basis="given")
    document = json.transfers([made])
    assert set(document) == REPORT_KEYS
    assert {key for source in document["sources"] for key in source} == SOURCE_KEYS
    assert document["checksum"] == {"algorithm": "md5", "value": "ab" * 16, "verified": True, "basis": "given"}
    assert document["sources"][1]["outcome"] == "failed"
    assert document["sources"][1]["error"] == made.sources[1].error


def test_without_a_checksum_its_keys_stay():
    assert json.transfers([report()])["checksum"] == {
        "algorithm": None,
        "value": None,
        "verified": False,
        "basis": "none",
    }


def test_several_files_are_a_list():
    document = json.transfers([report(output="a"), report(output="b")])
    assert set(document) == {"files"}
    assert [file["output"] for file in document["files"]] == ["a", "b"]


def test_passwords_are_not_shown():
    assert "secret" in url(1)
    assert "secret" not in str(json.transfers([report()]))


def test_a_failure_has_what_was_known():
    assert json.error_document(TransferFailed("every source failed", "wait")) == {
        "code": "transfer_failed",
        "message": "every source failed",
        "remedy": "wait",
        "transient": True,
    }
    assert json.unfinished(Results()) == {}
    assert set(json.unfinished(Results(unfinished=report()))) == REPORT_KEYS
    several = json.unfinished(Results([report(output="a")], report(output="b"), several=True))
    assert [each["output"] for each in several["files"]] == ["a", "b"]


def test_a_plan_shows_what_each_source_is_expected_to_do():
    share = PlannedShare(url(1), 7, 0.7, Estimate(0.1, 5.0, "seen yesterday"), error=None)
    plan = Plan("x", 10, "adaptive", 2.0, "because", (share, share._replace(error="gone")))
    document = json.plans([plan])
    assert document["shares"][0] == {
        "url": "ftp://user@se01.example:2811/store/run 7/file.root",
        "bytes": 7,
        "fraction": 0.7,
        "setup_seconds": 0.1,
        "rate": 5.0,
        "rate_p10_p90": None,
        "reason": "seen yesterday",
        "priority": None,
        "routes": [],
        "error": None,
    }
    assert document["shares"][1]["error"] == "gone"
