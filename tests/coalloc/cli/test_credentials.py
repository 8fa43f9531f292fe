"""Credentials of a whole command: what it sends, and that no output, file or list of processes has them."""

import asyncio
import base64
import json
from pathlib import Path

import pytest

from tests.support.coget import coget
from tests.support.web import answer, ranges, redirect, web_server

CONTENT = bytes(range(250)) * 8000
SECRETS = ["t0ken-abcdef", "hush-1234", "k3y-of-header", "r0le-of-header", "c00kie-value", "qu3ry-key"]
SECRETS += [base64.b64encode(f"ann:{SECRETS[1]}".encode()).decode()]


class Archive:
    """A data server with a login of its own, which answers some requests, and then refuses all, repeating secrets."""

    def __init__(self, name, value, most):
        self.name, self.value, self.most = name, value, most
        self.listed = b""
        self.serve = ranges(CONTENT)

    def __call__(self, heard):
        if not self.listed:
            lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
            self.listed = b"\n".join(lines) or b"none"
        if heard.header("Cookie") != f"id={SECRETS[4]}":
            return redirect(f"/x?sig={SECRETS[5]}", Set_Cookie=f"id={SECRETS[4]}; Path=/")
        if heard.header(self.name) != self.value or (self.most <= 0 and heard.startswith("GET")):
            known = [heard.header(name) for name in ("Authorization", "X-Key", "X-Role", "Cookie")]
            words = [word for value in filter(None, known) for word in (value.split()[-1], value.partition("=")[2])]
            return answer(f"403 not with {' '.join(words)} {heard.path}")
        if heard.startswith("GET") and heard.header("Range") != "bytes=0-0":
            self.most -= 1
        return self.serve(heard)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text(text)
    return path


def of_environment(home, private, place, proxy):
    headers = write(private / "headers", f"X-Key: {SECRETS[2]}\n")
    environment = {"BEARER_TOKEN_FILE": str(write(private / "token", SECRETS[0])), "X509_USER_PROXY": str(proxy)}
    return ["--header", f"@{headers}"], environment, ("Authorization", f"Bearer {SECRETS[0]}")


def of_files(home, private, place, proxy):
    write(private / "netrc", f"machine 127.0.0.1 login ann password {SECRETS[1]}\n")
    rule = f'[hosts."{place}"]\nheaders = ["X-Role: {SECRETS[3]}"]\n'
    write(private / "config" / "coget" / "tokens.toml", rule)
    environment = {"NETRC": str(private / "netrc"), "XDG_CONFIG_HOME": str(private / "config")}
    return [], environment, ("Authorization", f"Basic {SECRETS[-1]}")


def of_agent(home, private, place, proxy):
    program = write(private / "bin" / "oidc-token", f"#!/bin/sh\necho {SECRETS[0]}\n")
    program.chmod(0o700)
    write(private / "config" / "coget" / "config.toml", f'[hosts."{place}"]\noidc_agent = "wlcg"\n')
    environment = {"PATH": f"{private}/bin:/usr/bin:/bin", "XDG_CONFIG_HOME": str(private / "config")}
    return [], environment, ("Authorization", f"Bearer {SECRETS[0]}")


@pytest.mark.parametrize("kind", [of_environment, of_files, of_agent], ids=lambda kind: kind.__name__)
async def test_no_output_file_or_list_of_processes_has_a_secret(kind, home, tmp_path, grid, alice_proxy):
    """The transfer fails in the middle, so that its journal stays, and its report waits for a broker."""
    archive = Archive("", "", 4)
    async with web_server(archive, grid) as server:
        place = server.url.partition("://")[2]
        words, more, (archive.name, archive.value) = kind(home, tmp_path / "private", place, alice_proxy.certificate)
        more |= {"SSL_CERT_FILE": str(grid.authority.certificate), "COGET_BROKER": "http://127.0.0.1:1"}
        url = f"{server.url}/x?sig={SECRETS[5]}"
        split = ["--strategy", "conservative", "--blocks", "8"]
        done = await asyncio.to_thread(coget, ["-v", "--json", "-o", "x", *split, *words, url], home, **more)
        archive.most = 99
        plan = await asyncio.to_thread(coget, ["plan", "--metalink", *words, url.partition("?")[0]], home, **more)
        doctor = await asyncio.to_thread(coget, ["doctor", "-v", *words, url], home, **more)
    assert set(server.all(archive.name)) == {archive.value}
    assert (done.returncode, plan.returncode, doctor.returncode) == (5, 0, 0), done.stderr + plan.stderr + doctor.stderr
    assert "<url" in plan.stdout
    assert "403 not with ..." in json.loads(done.stdout)["error"]["message"]
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {"journal", "history.sqlite"} <= {path.name for path in files}
    assert any("outbox" in str(path) for path in files)
    searched = {str(path): path.read_bytes() for path in files}
    for run in (done, plan, doctor):
        searched[str(run.args)] = f"{run.stdout}{run.stderr}".encode()
    searched["processes"] = archive.listed
    kept = {path: secret for path, text in searched.items() for secret in SECRETS if secret.encode() in text}
    assert kept == {}


async def test_doctor_says_which_credential_a_server_gets_and_why_others_are_not_sent(home, tmp_path, grid):
    token = write(tmp_path / "token", "t0ken")
    token.chmod(0o640)
    environment = {"SSL_CERT_FILE": str(grid.authority.certificate), "BEARER_TOKEN_FILE": str(token)}
    async with web_server(ranges(CONTENT), grid) as server:
        place = server.url.partition("://")[2]
        words = ["doctor", "--json", f"{server.url}/x", "ftp://127.0.0.1:1/x"]
        first = await asyncio.to_thread(coget, words, home, **environment)
        token.chmod(0o600)
        second = await asyncio.to_thread(coget, words, home, **environment)
        write(home / ".config" / "coget" / "tokens.toml", f'[hosts."{place}"]\nbearer_token = "0ther"\n')
        third = await asyncio.to_thread(coget, ["doctor", f"{server.url}/x"], home, **environment)
    found = [[each["credential"] for each in json.loads(run.stdout)["servers"]] for run in (first, second)]
    problem = "others may read it (mode 0640); run chmod 600 on it"
    assert found[0] == [f"none (not sent: the token in {token} (BEARER_TOKEN_FILE), because {problem})", ""]
    assert found[1] == [f"the token in {token} (BEARER_TOKEN_FILE)", ""]
    assert "tokens.toml" in third.stdout.partition("credential")[2]


async def test_a_header_is_sent_without_any_library(home):
    """The server has no TLS, and is asked by `plain`."""
    async with web_server(lambda heard: serve(heard)) as server:
        serve = ranges(CONTENT)
        words = ["-H", "X-Key: abc", "-H", "user-agent: mine/1", f"{server.url}/x"]
        done = await asyncio.to_thread(coget, words, home)
    assert done.returncode == 0, done.stderr
    assert (home / "x").read_bytes() == CONTENT
    assert set(server.all("X-Key")) == {"abc"}
    assert set(server.all("User-Agent")) == {"mine/1"}


def test_an_invalid_header_is_a_usage_error_without_its_value(home):
    done = coget(["-H", "X-Key s3cret", "https://a.example/x"], home)
    assert done.returncode == 2
    assert "s3cret" not in done.stdout + done.stderr
