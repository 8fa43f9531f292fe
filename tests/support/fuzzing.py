"""A search for new failures in tests of random cases: `make fuzz MINUTES=30`.

Each round runs the property tests and those marked `seeded` with seeds of its own. What fails is written down for
good: an example of Hypothesis as an `@example` in its test, a seed in tests/seeds.json. Look at `git diff`, mend, and
commit both.
"""

import argparse
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.seeds import FOUND

PATCHES = Path(".hypothesis", "patches")


def main() -> int:
    """Search until the time is over; return 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long to try (default: 10)")
    parser.add_argument("tests", nargs="*", help="files, folders or tests (default: all)")
    chosen = parser.parse_args()
    end, failed, rounds = time.monotonic() + 60 * chosen.minutes, 0, 0
    while (left := end - time.monotonic()) > 0:
        seed, patches, rounds = secrets.randbits(32), set(PATCHES.glob("*.patch")), rounds + 1
        found = _round(seed, chosen.tests, left)
        for patch in sorted(set(PATCHES.glob("*.patch")) - patches):
            found = True
            subprocess.run(["git", "apply", str(patch)], check=True)
            print(f"{patch} is applied", flush=True)
        print(f"round {rounds}, COGET_FUZZ={seed}: {'something fails' if found else 'nothing found'}", flush=True)
        failed += found
    print(f"{failed} of {rounds} rounds found something" + ("; see git diff" if failed else ""))
    return int(failed > 0)


def _round(seed: int, tests: list[str], seconds: float) -> bool:
    """Run all once, with a time limit; return whether something fails, by its status or a new seed."""
    before = FOUND.read_text() if FOUND.exists() else ""
    words = [
        "-m",
        "hypothesis or seeded",
        "--numprocesses",
        "2",
        "--dist",
        "loadfile",
        "-q",
        f"--hypothesis-seed={seed}",
    ]
    environment = {**os.environ, "COGET_FUZZ": str(seed)}
    with subprocess.Popen([sys.executable, "-m", "pytest", *words, *tests], env=environment) as running:
        try:
            running.wait(seconds)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGINT)  # it prints the failures so far
    return running.returncode == 1 or (FOUND.exists() and FOUND.read_text() != before)


if __name__ == "__main__":
    sys.exit(main())
