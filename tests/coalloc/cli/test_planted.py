"""`coget get` where another user planted files: it ends with status 6 and a remedy, and changes nothing."""

import json
import os

import pytest

from tests.support.coget import CONTENT, coget
from tests.support.users import another_user, as_root, shared_directory


def plant_link(folder, secret):
    folder.symlink_to(secret.parent)


def plant_broken_journal(folder, secret):
    folder.mkdir()
    (folder / "journal").symlink_to(secret)
    (folder / "journal.broken").symlink_to(secret.with_name("stolen"))


def plant_data(folder, secret):
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "data").write_bytes(CONTENT)
    (folder / "data").chmod(0o666)


def plant_fifos(folder, secret):
    folder.mkdir()
    folder.chmod(0o777)
    for name in ("data", "journal", "lock", "journal.new", "journal.broken"):
        os.mkfifo(folder / name)
        (folder / name).chmod(0o666)


@as_root
@pytest.mark.parametrize("plant", [plant_link, plant_broken_journal, plant_data, plant_fifos])
def test_planted_files_are_refused_with_a_remedy(urls, home, tmp_path, plant):
    (tmp_path / "mine").mkdir()
    secret = tmp_path / "mine" / "data"
    secret.write_bytes(b"secret")
    with shared_directory(0o1777) as shared:
        with another_user():
            plant(shared / "x.coget", secret)
        there = sorted(path.name for path in shared.rglob("*"))
        result = coget(["get", "--json", "--quiet", "-o", str(shared / "x"), *urls[:2]], home)
        assert result.returncode == 6
        error = json.loads(result.stdout)["error"]
        assert (error["code"], error["remedy"] in result.stderr) == ("local_disk", True)
        assert f"{shared}/x.coget is needed for partial data" in error["message"]
        assert sorted(path.name for path in shared.rglob("*")) == there
        assert [path.name for path in secret.parent.iterdir()] == ["data"]
        assert secret.read_bytes() == b"secret"
        assert coget(["--quiet", "-o", str(shared / "y"), *urls[:2]], home).returncode == 0, "the remedy helps"
        assert (shared / "y").read_bytes() == CONTENT
