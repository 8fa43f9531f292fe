"""The man pages and completion scripts that packages contain."""

import shutil
import subprocess

import pytest

from scripts import shared_files
from tests.support.waiting import PATIENCE


def test_every_command_has_a_man_page_and_every_program_completion(tmp_path):
    shared_files.main(tmp_path)
    manual = {path.stem for path in tmp_path.glob("man/man1/*.1")}
    assert {"coget", "coget-get", "coget-history-import", "coget-broker-token-create", "coget-depot-serve"} <= manual
    for place in shared_files.PLACES.values():
        assert all((tmp_path / place.format(name)).read_text() for name, _, _ in shared_files.PROGRAMS)
    for path in tmp_path.glob("bash-completion/completions/*"):
        subprocess.run(["bash", "-n", path], check=True, timeout=PATIENCE)
    page = (tmp_path / "man/man1/coget.1").read_text()
    assert "coget\\-get" in page
    assert "\b" not in page


@pytest.mark.skipif(not shutil.which("mandoc"), reason="mandoc is not installed")
def test_mandoc_finds_nothing_in_the_man_pages(tmp_path):
    shared_files.main(tmp_path)
    pages = sorted(tmp_path.glob("man/man1/*.1"))
    command = ["mandoc", "-T", "lint", "-W", "warning", *pages]  # long lines and pages from elsewhere are no warnings
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (found.returncode, found.stdout) == (0, "")
