"""`coget plan` on real servers."""

import json

from tests.support.coget import CONTENT, NAME, coget


def test_the_plan_shows_shares_and_moves_nothing(urls, home):
    result = coget(["plan", *urls], home)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{NAME}: 8.39 MB, time unknown (adaptive)")
    assert lines[1]
    assert [line.split()[0].rpartition(":")[0] for line in lines[3:6]] == ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    assert "not used" in lines[5]
    assert lines[6].startswith("127.0.0.4:")
    assert list(home.glob("*.root*")) == []


def test_after_a_transfer_the_time_is_known(urls, home):
    assert coget(["--quiet", *urls[:2]], home).returncode == 0
    document = json.loads(coget(["plan", "--json", *urls[:2]], home).stdout)
    assert document["size"] == len(CONTENT) == sum(share["bytes"] for share in document["shares"])
    assert document["seconds"] > 0
    known = [share for share in document["shares"] if share["rate"] is not None]
    assert known  # one source may have delivered everything
    assert all(share["rate"] > 0 and share["setup_seconds"] is not None for share in known)


def test_the_metalink_of_a_plan_can_be_fetched(urls, home):
    assert coget(["--quiet", "-o", "first", *urls[:2]], home).returncode == 0
    result = coget(["plan", "--metalink", *urls[:2]], home)
    assert result.returncode == 0
    (home / "x.meta4").write_text(result.stdout)
    fetched = coget(["--quiet", "x.meta4"], home)
    assert fetched.returncode == 0, fetched.stderr
    assert (home / NAME).read_bytes() == CONTENT


def test_a_plan_of_nothing_is_status_3(urls, home):
    result = coget(["plan", urls[2]], home)
    assert result.returncode == 3
    assert urls[2] in result.stderr
