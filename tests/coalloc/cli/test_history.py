"""`coget history` after real transfers."""

import json

from tests.support.coget import CONTENT, coget


def test_before_any_transfer(home):
    result = coget(["history"], home)
    assert (result.returncode, result.stdout) == (0, "No transfers yet.\n")


def test_each_source_has_a_line_with_its_failures(urls, home):
    assert coget(["--quiet", "--strategy", "brute", *urls], home).returncode == 0  # which waits for answers
    result = coget(["history"], home)
    rows = {line.split()[0].rpartition(":")[0]: line.split() for line in result.stdout.splitlines()[1:]}
    failures = {source: row[-1] for source, row in rows.items()}
    assert failures == {"ftp://127.0.0.2": "0", "ftp://127.0.0.3": "0", "ftp://127.0.0.4": "1"}


def test_an_import_says_what_it_brought_as_json_too(home):
    (home / "log.csv").write_text("source,start,bytes,seconds\nftp://a.example,1700000000,10000000,1\n")
    for words in (["history", "import", "--json", "log.csv"], ["history", "--json", "import", "log.csv"]):
        (learned,) = json.loads(coget(words, home).stdout)["logs"]
        assert (learned["log"], learned["transfers"], learned["usable"]) == ("log.csv", 1, 1)


def test_json(urls, home):
    assert coget(["--quiet", urls[0]], home).returncode == 0
    (source,) = json.loads(coget(["history", "--json"], home).stdout)["sources"]
    assert (source["transfers"], source["bytes"], source["failures"]) == (1, len(CONTENT), 0)
    assert source["rate"] > 0
