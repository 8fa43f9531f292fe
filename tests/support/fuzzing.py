"""A search for new failures in tests of random cases: `make fuzz MINUTES=30`.

Each round runs the property tests and the tests marked `seeded` with new seeds. It stores each failure: an example of
Hypothesis as an `@example` in the test, a seed in tests/seeds.json. Then look at `git diff`, fix the defect, and commit
both.
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
    """Run rounds until the time is over; return 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="duration of the search (default: 10)")
    parser.add_argument("tests", nargs="*", help="files, directories or tests (default: all)")
    chosen = parser.parse_args()
    end, failed, rounds = time.monotonic() + 60 * chosen.minutes, 0, 0
    while (left := end - time.monotonic()) > 0:
        seed, patches, rounds = secrets.randbits(32), set(PATCHES.glob("*.patch")), rounds + 1
        found = _round(seed, chosen.tests, left)
        for patch in sorted(set(PATCHES.glob("*.patch")) - patches):
            found = True
            subprocess.run(["git", "apply", str(patch)], check=True)
            print(f"applied {patch}", flush=True)
        print(f"round {rounds}, COGET_FUZZ={seed}: {'a test failed' if found else 'no failure'}", flush=True)
        failed += found
    print(f"{failed} of {rounds} rounds found failures" + ("; see git diff" if failed else ""))
    return int(failed > 0)


def _round(seed: int, tests: list[str], seconds: float) -> bool:
    """Run all tests once, with a time limit; return whether pytest reports a failure or a new seed was stored."""
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
            running.send_signal(signal.SIGINT)  # pytest then prints the failures so far
    return running.returncode == 1 or (FOUND.exists() and FOUND.read_text() != before)


if __name__ == "__main__":
    sys.exit(main())
