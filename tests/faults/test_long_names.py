"""Files with names of up to 255 bytes, which leave no room for `.coget`: fetched, killed and resumed by the command."""

import asyncio
import json
import random
from urllib.parse import quote

import pytest

from coalloc.util.partial_names import data_folder
from tests.support.coget import coget, coget_process
from tests.support.halving import HalvingServer
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE, until

CONTENT = random.Random(3).randbytes(2 << 20)
HALF = len(CONTENT) // 2
ASCII, ACCENTS = "n" * 254, "é" * 126
NAMES = [f"{ASCII}1", f"{ASCII}2", f"{ACCENTS}ab", f"{ACCENTS}ac"]


def written(home, name):
    data = home / data_folder(name) / "data"
    return data.stat().st_blocks * 512 if data.exists() else 0


@pytest.mark.parametrize("name", NAMES[::2])
async def test_a_killed_fetch_goes_on_from_its_partial_data(tmp_path, name):
    server = HalvingServer(CONTENT)
    async with raw_server(server.serve) as port:
        words = ["--json", f"http://127.0.0.1:{port}/{quote(name)}"]
        with coget_process(words, tmp_path) as process:
            await until(lambda: written(tmp_path, name) >= HALF // 2 or process.poll() is not None)
            process.kill()
            process.communicate(timeout=PATIENCE)
        server.whole.set()
        done = await asyncio.to_thread(coget, words, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed_bytes"] > 0
    assert (tmp_path / name).read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir() if "coget" in path.name] == []


@pytest.mark.parametrize("alike", [NAMES[:2], NAMES[2:]])
def test_two_names_that_begin_alike_have_partial_data_of_their_own(alike):
    one, other = map(data_folder, alike)
    assert one != other
    assert one[:50] == other[:50] == alike[0][:50]
    assert len(one.encode()) <= 255 >= len(other.encode())
    assert one.isprintable()


def test_the_place_of_the_partial_data_does_not_depend_on_the_directory():
    assert data_folder(f"a/b/{NAMES[0]}") == f"a/b/{data_folder(NAMES[0])}"
    assert data_folder("x" * 249) == "x" * 249 + ".coget"
