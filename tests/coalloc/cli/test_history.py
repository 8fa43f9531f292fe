"""`coget history` after real transfers."""

import json

from tests.support.coget import CONTENT, coget


def test_before_any_transfer(home):
    result = coget(["history"], home)
    assert (result.returncode, result.stdout) == (0, "No transfers yet.\n")


def test_each_source_has_a_line_with_its_failures(urls, home):
    assert coget(["--quiet", "--strategy", "brute", *urls], home).returncode == 0  # waits for answers
    result = coget(["history"], home)
    rows = {line.split()[0].rpartition(":")[0]: line.split() for line in result.stdout.splitlines()[1:]}
    failures = {source: row[-1] for source, row in rows.items()}
    assert failures == {"ftp://127.0.0.2": "0", "ftp://127.0.0.3": "0", "ftp://127.0.0.4": "1"}


def test_import_prints_its_result_as_json(home):
    (home / "log.csv").write_text("source,start,bytes,seconds\nftp://a.example,1700000000,10000000,1\n")
    for words in (["history", "import", "--json", "log.csv"], ["history", "--json", "import", "log.csv"]):
        (learned,) = json.loads(coget(words, home).stdout)["logs"]
        assert (learned["log"], learned["transfers"], learned["usable"]) == ("log.csv", 1, 1)


def test_json(urls, home):
    assert coget(["--quiet", urls[0]], home).returncode == 0
    (source,) = json.loads(coget(["history", "--json"], home).stdout)["sources"]
    assert (source["transfers"], source["bytes"], source["failures"]) == (1, len(CONTENT), 0)
    assert source["rate"] > 0


def test_an_import_names_the_lines_that_it_refuses_or_changes(home):
    rows = ["ftp://a.example", "a\u202eb", "ftp://a[b]", "FTP://ann:secret@A.Example:21/x", "b.example"]
    table = "".join(f"{source},{1700000000 + i},10000000,1\n" for i, source in enumerate(rows))
    (home / "log.csv").write_text(f"source,start,bytes,seconds\n{table}")
    result = coget(["history", "import", "log.csv"], home)
    assert result.stdout == "a table of transfers: 3 transfers, 3 of them usable, 3 new\n"
    assert result.stderr.splitlines() == [
        r"line 3 is refused: source: 'a\\u202eb' is not an address of a server",
        "line 4 is refused: source: 'ftp://a[b]' is not an address of a server",
        "line 5: source 'ftp://ann@A.Example:21/x' is stored as 'ftp://a.example'",
        "line 6: source 'b.example' is stored as 'gsiftp://b.example'",
        "2 lines refused, 2 changed",
    ]
    (learned,) = json.loads(coget(["history", "import", "--json", "log.csv"], home).stdout)["logs"]
    assert [each["line"] for each in learned["refused"]] == [3, 4]
    assert [each["line"] for each in learned["changed"]] == [5, 6]
    assert (learned["lines_refused"], learned["lines_changed"], learned["new"]) == (2, 2, 0)
