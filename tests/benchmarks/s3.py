"""The benchmark of S3: coget with four replicas, and rclone with one of them and several numbers of streams.

    python -m tests.benchmarks.s3 [--gib 1] [--rounds 9] [--streams 1,4,8,16]

The servers are nginx on this machine, with files in memory: it serves a bucket as a directory, and ignores signatures,
which both programs make. Each round runs the rivals in a new random order. A ratio compares runs of one round. rclone
has no checksum of the file, as nginx states none; coget compares replicas as always (`four`), or not (`four-plain`).
"""

import argparse
import os
import random
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.loopback import COGET, MEMORY, fresh, rounds, spread
from tests.support.nginx import Nginx

BUCKET, KEY = "runs", "source.bin"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIABENCHMARK", "AWS_SECRET_ACCESS_KEY": "benchmark", "AWS_EC2_METADATA_DISABLED": "true"}
RCLONE = {
    "RCLONE_CONFIG": os.devnull,
    "RCLONE_CONFIG_S3_TYPE": "s3",
    "RCLONE_CONFIG_S3_PROVIDER": "Other",
    "RCLONE_CONFIG_S3_ENV_AUTH": "true",
}


def main() -> None:
    """Print a table with a row for each rival."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--streams", default="1,4,8,16", help="numbers of rclone's streams")
    given = parser.parse_args()
    size = int(given.gib * 1024) << 20
    free = shutil.disk_usage(MEMORY).free
    if free < 3 * size:
        raise SystemExit(f"{MEMORY} has {free >> 20} MiB free, {3 * size >> 20} are needed: use a smaller --gib")
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="coget-bench-") as name, ExitStack() as stack:
        compare(stack, Path(name), size, given.rounds, given.streams.split(","))


def compare(stack: ExitStack, folder: Path, size: int, count: int, streams: list[str]) -> None:
    """Start four servers, run all rivals, and print their rates and ratios to rclone's best."""
    bucket, target = folder / "root" / BUCKET, folder / "target.bin"
    bucket.mkdir(parents=True)
    with (bucket / KEY).open("wb") as file:
        for _ in range(size >> 20):
            file.write(random.randbytes(1 << 20))
    servers = [stack.enter_context(Nginx(folder / "root", folder / f"run-{i}")) for i in range(4)]
    rules = [f'[s3.r{i}]\nbucket = "{BUCKET}"\nendpoint = "{each.url("")}"\n' for i, each in enumerate(servers)]
    (folder / "coget").mkdir()
    (folder / "coget" / "config.toml").write_text("".join(rules))
    os.environ.pop("AWS_CA_BUNDLE", None)  # rclone does not start with it
    os.environ.update(
        {**KEYS, **RCLONE, "RCLONE_CONFIG_S3_ENDPOINT": servers[0].url(""), "XDG_CONFIG_HOME": f"{folder}"}
    )
    four = [f"s3://r{i}/{KEY}" for i in range(4)]
    rclone = [
        "rclone",
        "copyto",
        f"s3:{BUCKET}/{KEY}",
        str(target),
        "--multi-thread-cutoff",
        "1M",
        "--multi-thread-streams",
    ]
    rivals = {f"rclone {each}": fresh(target, *rclone, each) for each in streams}
    rivals["four"] = fresh(target, *COGET, *four, "-o", str(target))
    rivals["four-plain"] = fresh(target, *COGET, *four, "--checksum", "none", "-o", str(target))
    runs = rounds(rivals, count)
    best = [min((runs[f"rclone {each}"][i] for each in streams), key=lambda run: run.seconds) for i in range(count)]
    print(f"\n{size >> 20} MiB, memory to memory, {count} rounds: median [least-most]")
    print(f"{'':12}  {'MB/s':>22}  {'CPU s/GB':>18}  {'speed ratio':>18}  {'MB of memory':>18}")
    for name, mine in runs.items():
        print(
            f"{name:12}  {spread([size / 1e6 / r.seconds for r in mine], '{:.0f}'):>22}"
            f"  {spread([r.cpu / size * 1e9 for r in mine]):>18}"
            f"  {spread([p.seconds / r.seconds for p, r in zip(best, mine, strict=True)]):>18}"
            f"  {spread([r.memory / 1e6 for r in mine], '{:.0f}'):>18}"
        )
    print("wanted: speed ratio of four to the best of rclone in its round >= 1.0")


if __name__ == "__main__":
    main()
