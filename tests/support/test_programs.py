"""Forked starts behave like real ones: the same arguments, environment, streams, signals, process group and end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.effort import LONG
from tests.support.programs import BROKER, COGET, LATE, ForkedProcess, run, start
from tests.support.users import umask
from tests.support.waiting import PATIENCE, wait_until

SAYS_WHERE = f"""
import atexit, sys, sysconfig
packages = sysconfig.get_path("purelib")
found = next(path for path in sys.path if path in ({str(programs.HOUSE)!r}, packages))
atexit.register(lambda: print(found, packages, file=sys.stderr))
"""


@pytest.fixture
def forks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(programs, "forks", request.param)
    return bool(request.param)


STARTS = {"forked": True, "plain": False} if LONG else {"forked": True}
starts = pytest.mark.parametrize("forks", STARTS.values(), ids=STARTS, indirect=True)


@pytest.mark.long
@starts
@pytest.mark.parametrize("command", [[COGET, "--help"], [BROKER, "--help"], [BROKER, "demo", "--nonsense"]])
def test_forked_program_prints_the_same_and_has_the_same_status(forks, command, tmp_path):
    done, plain = run(command, cwd=tmp_path, text=True), subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)


@pytest.mark.long
@starts
def test_environment_folder_and_umask(forks, tmp_path):
    """A started command uses the given environment, working directory and umask."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COGET_HISTORY": "one/history"}
    with umask(0o027):
        run([COGET, "ftp://127.0.0.1:1/x", "-o", "x"], cwd=tmp_path, env=environment)
        words = ["token", "list", "--database", "sqlite:///b.sqlite"]
        assert run([BROKER, *words], cwd=tmp_path).returncode == 2
        assert run([BROKER, "upgrade", *words[2:]], cwd=tmp_path).returncode == 0
    assert (tmp_path / "b.sqlite").stat().st_mode & 0o027 == 0
    made = run([COGET, "doctor", "--json"], cwd=tmp_path, env=environment, text=True).stdout
    assert "one/history" in made


@pytest.mark.long
@starts
def test_it_is_a_child_that_signals_reach(forks, tmp_path):
    for number in (signal.SIGKILL, signal.SIGTERM):
        with (tmp_path / "log").open("wb") as log:
            words = ["serve", "--port", "0", "--database", f"sqlite:///{tmp_path}/b.sqlite"]
            process = start([BROKER, *words], stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
        assert isinstance(process, ForkedProcess) == forks
        wait_until(lambda: "running on" in (tmp_path / "log").read_text() or process.poll() is not None)  # noqa: B023
        assert process.poll() is None
        stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        assert stat[1:4] == [str(os.getpid()), str(process.pid), str(process.pid)]  # parent, group, session
        process.send_signal(number)
        assert process.wait(PATIENCE) == -number


@pytest.mark.long
@starts
def test_standard_input_and_no_other_descriptor(forks, tmp_path):
    kept, other = os.pipe()
    with start([COGET, "doctor", "--json"], stdin=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        os.close(kept)
        assert process.stdout.read().startswith(b"{")
    with pytest.raises(BrokenPipeError):  # no process has the reading end
        os.write(other, b"x")
    os.close(other)
    assert process.returncode in (0, 3)


def test_forked_start_reads_sitecustomize(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.exit('read')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert "read" in run([COGET, "--help"], env=environment, text=True).stderr


@pytest.mark.long
@starts
def test_code_that_may_run_late_runs_before_the_command(forks, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(f"{LATE}import sys\nsys.exit('read')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with start([COGET, "--help"], env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert isinstance(process, ForkedProcess) == forks
        assert "read" in process.stderr.read()


@starts
@pytest.mark.parametrize("command", [COGET, BROKER])
def test_program_is_of_this_checkout_and_not_an_installed_one(forks, command, tmp_path):
    """Python searches this checkout before the installed packages, even if a test sets PYTHONPATH."""
    (tmp_path / "sitecustomize.py").write_text(f"{LATE}{SAYS_WHERE}")
    environment = {"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    done = run([command, "--help"], env=environment, cwd=tmp_path, text=True)
    assert done.returncode == 0, done.stderr
    found, packages = done.stderr.split()[-2:]
    assert found == str(programs.HOUSE) != packages


def test_programs_end_when_the_tests_are_killed(tmp_path):
    code = (
        "import sys\nfrom tests.support.programs import BROKER, start\n"
        "made = start([BROKER, 'serve', '--port', '0', '--database', f'sqlite:///{sys.argv[1]}/b.sqlite'])\n"
        "print(made.pid, flush=True)\nmade.wait()\n"
    )
    folder, words = Path(__file__).parents[2], [sys.executable, "-c", code, tmp_path]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder) as tests:
        number = int(tests.stdout.readline())
        (server,) = {int(each) for each in _children(tests.pid)} - {number}
        tests.kill()
    wait_until(lambda: not any(_runs(each) for each in (number, server)))


def _children(number: int) -> list[str]:
    return Path(f"/proc/{number}/task/{number}/children").read_text().split()


def _runs(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
