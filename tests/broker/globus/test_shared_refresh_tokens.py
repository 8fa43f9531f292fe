"""Refresh tokens of a public client in programs of users with the real SDK: two share one, and an answer is lost."""

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.broker import PROGRAM, BrokerProcess
from tests.support.browser import Browser
from tests.support.globus import SDK, Globus, made
from tests.support.programs import run
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.long

LINK = """
client = NativeAppAuthClient(sys.argv[1])
client.oauth2_start_flow(refresh_tokens=True, requested_scopes=TransferClient.scopes.all, verifier="v" * 50)
print(json.dumps(client.oauth2_get_authorize_url()))
"""
REDEEM = """
client = NativeAppAuthClient(sys.argv[1])
client.oauth2_start_flow(refresh_tokens=True, requested_scopes=TransferClient.scopes.all, verifier="v" * 50)
tokens = client.oauth2_exchange_code_for_tokens(sys.argv[2])
print(json.dumps(tokens.by_resource_server["transfer.api.globus.org"]["refresh_token"]))
"""
PROGRAM_OF_A_USER = """
# Each turn refreshes, as if a day had passed, and uses the new access token. The file is shared.
client, file = NativeAppAuthClient(sys.argv[1]), sys.argv[2]
for turn in range(3):
    print("ready", flush=True)
    sys.stdin.readline()
    def keep(tokens):
        given = tokens.by_resource_server["transfer.api.globus.org"]["refresh_token"]
        with open(f"{file}.{os.getpid()}", "w") as new:
            new.write(given)
        os.replace(new.name, file)
    authorizer = RefreshTokenAuthorizer(open(file).read(), client, on_refresh=keep)
    print(TransferClient(authorizer=authorizer).get("/broker/v1/whoami")["subject"], flush=True)
"""


def test_two_programs_share_a_refresh_token_and_survive_a_lost_answer(tmp_path, empty_database):
    with BrokerProcess(empty_database, tmp_path) as broker, losing_answers(broker.url) as (address, lost):
        words = ("--database", empty_database)
        number = run([PROGRAM, "client", "create", "notebook", *words], text=True, check=True).stdout.strip()
        token = run([PROGRAM, "token", "create", "ann", *words], text=True, check=True).stdout.strip()
        home = Globus(tmp_path / "home", broker.url)
        browser = Browser(tmp_path / "cookies.json")
        page = browser.send(browser.open(home.sdk(LINK, number)), token=token)
        browser.close()
        shared = tmp_path / "refresh-token"
        shared.write_text(home.sdk(REDEEM, number, page.words["code"]))
        first = shared.read_text()
        home.environment["GLOBUS_SDK_SERVICE_URL_AUTH"] = address
        programs = [_started(home, number, shared) for _ in range(2)]
        try:
            for using, loses in ((programs, False), (programs[:1], False), (programs[:1], True)):
                if loses:
                    lost.append("next")
                for program in using:
                    assert program.stdout is not None
                    assert program.stdin is not None
                    assert program.stdout.readline() == "ready\n"
                    program.stdin.write("go\n")
                for program in using:
                    program.stdin.flush()
                assert [program.stdout.readline() for program in using] == ["ann\n"] * len(using)
        finally:
            for program in programs:
                program.kill()
                program.communicate(timeout=PATIENCE)
        assert lost == ["lost"]
        assert shared.read_text() != first


def _started(home: Globus, *words: str | Path) -> "subprocess.Popen[str]":
    command = [made("sdk") / "python", "-c", SDK + PROGRAM_OF_A_USER, *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen(command, env=home.environment, text=True, **pipes)


@contextmanager
def losing_answers(url: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a proxy, and a list; if the list is ["next"], the next answer is lost, which is noted."""
    host, port = url.rpartition("/")[2].split(":")
    lost: list[str] = []

    async def answers(there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answer := await there.read(65536):
            if lost == ["next"]:
                lost[:] = ["lost"]
                break
            writer.write(answer)
        writer.close()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        answering = asyncio.ensure_future(answers(there, writer))
        while asked := await reader.read(65536):
            back.write(asked)
        back.close()
        await answering

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(carry, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", lost
    finally:
        server.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()
