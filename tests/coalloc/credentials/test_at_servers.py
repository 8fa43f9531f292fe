"""Credentials at real web servers: the right one gets them, a thief gets nothing, and new ones are used at once."""

import asyncio
import base64
import itertools
import socket
import ssl
from contextlib import asynccontextmanager, closing

import httpx
import pytest

from coalloc.credentials import Credentials, Presenter, known
from coalloc.engine.http import HTTPSource
from coalloc.engine.http.responses import origin_of
from coalloc.errors import PermissionRefused, SourceError
from coalloc.model.replicas import Origin
from coalloc.resolve import http_documents
from tests.support.fetching import collect, opened, options, random_file
from tests.support.nginx import Nginx
from tests.support.oidc_agent import ACCOUNT, OIDCAgent, provider
from tests.support.web import answer, ranges, redirect, web_server

CONTENT = bytes(range(250)) * 40
SECRETS = ("t0ken-1", "t0ken-2", "hush1234", "k3y-of-header", "c00kie", base64.b64encode(b"ann:hush1234").decode())


@pytest.fixture
def trusted(home, grid, monkeypatch):
    """The grid's authority as that of the web."""
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    return grid


def source_of(url, credentials=None, **changes):
    return HTTPSource(url, options(credentials=credentials or Credentials(), **changes))


async def fetched(url, credentials=None, **changes):
    async with opened(source_of(url, credentials, **changes)) as source:
        return await collect(source, 0, len(CONTENT))


async def failure(url, credentials=None, **changes):
    source = source_of(url, credentials, **changes)
    try:
        with pytest.raises(SourceError) as caught:
            await source.open()
    finally:
        await source.close()
    return caught.value


FILE = ranges(CONTENT)


def wants(name, value, then=FILE):
    """Return a server's function that serves requests with this header, and refuses others."""
    return lambda heard: then(heard) if heard.header(name) == value else answer("401 Unauthorized")


def place_of(server):
    return server.url.partition("://")[2]


@pytest.fixture
def kinds(home, write, monkeypatch, alice_proxy):
    """Functions that give this process a credential for a server; each returns the header that the server gets."""

    def token(server):
        monkeypatch.setenv("BEARER_TOKEN", "t0ken-1")
        return {}, ("Authorization", "Bearer t0ken-1")

    def netrc(server):
        write(".netrc", "machine 127.0.0.1 login ann password hush1234")
        return {}, ("Authorization", f"Basic {SECRETS[-1]}")

    def header(server):
        return {"X-Key": "k3y-of-header"}, ("X-Key", "k3y-of-header")

    def rule(server):
        file = write("token", "t0ken-1")
        write(".config/coget/config.toml", f'[hosts."{place_of(server)}"]\nbearer_token_file = "{file}"\n')
        return {}, ("Authorization", "Bearer t0ken-1")

    def secret_header(server):
        write(".config/coget/tokens.toml", f'[hosts."{place_of(server)}"]\nheaders = ["X-Key: k3y-of-header"]\n')
        return {}, ("X-Key", "k3y-of-header")

    def agent(server):
        (home / "bin").mkdir()
        write("bin/oidc-token", "#!/bin/sh\n[ $# = 2 -a $2 = wlcg ] && echo t0ken-1\n", 0o700)
        monkeypatch.setenv("PATH", f"{home}/bin:/usr/bin:/bin")
        write(".config/coget/config.toml", f'[hosts."{place_of(server)}"]\noidc_agent = "wlcg"\n')
        return {}, ("Authorization", "Bearer t0ken-1")

    return {each.__name__: each for each in (token, netrc, header, rule, secret_header, agent)}


@pytest.mark.parametrize("kind", ["token", "netrc", "header", "rule", "secret_header", "agent"])
async def test_a_thief_to_which_a_server_redirects_gets_nothing(trusted, kinds, kind, monkeypatch, alice_proxy):
    """The user's certificate is shown by the same decision: only the first server sees it, too."""
    monkeypatch.setenv("X509_USER_PROXY", str(alice_proxy.certificate))
    async with web_server(ranges(CONTENT), trusted) as thief, web_server(lambda heard: reply(heard), trusted) as server:
        headers, (name, value) = kinds[kind](server)
        reply = wants(name, value, lambda heard: redirect(f"{thief.url}/x", Set_Cookie="id=c00kie"))
        assert await fetched(f"{server.url}/x", Credentials(headers)) == CONTENT
    assert set(server.all(name)) == {value}
    assert server.clients
    assert thief.heard
    assert not any(secret in request for request in thief.heard for secret in SECRETS)
    assert thief.clients == []


@pytest.mark.parametrize("host", ["b\u00fccher.example", "B\u00dcCHER.example", "xn--bcher-kva.example"])
@pytest.mark.parametrize("written", ["b\u00fccher.example", "xn--bcher-kva.example"])
async def test_a_host_gets_its_credentials_in_any_spelling(home, write, host, written):
    """Certificates are chosen by the same rules."""
    sent = origin_of(httpx.URL(f"https://{host}/x"))
    url = f"https://{host}/x"
    assert await Presenter(url, Credentials({"X-Key": "k3y"})).headers(sent) == {"X-Key": "k3y"}
    assert "Authorization" in await Presenter(f"https://ann:hush1234@{host}/x", None).headers(sent)
    write(".netrc", f"machine \u2603\u2603. login no password no machine {written} login ann password hush1234")
    assert await Presenter(url, Credentials()).headers(sent) == {"Authorization": f"Basic {SECRETS[-1]}"}
    write(".config/coget/tokens.toml", f'[hosts."{written}"]\nheaders = ["X-Key: k3y-of-header"]\n')
    assert (await Presenter(url, Credentials()).headers(sent))["X-Key"] == SECRETS[3]


@pytest.mark.parametrize("kind", ["token", "login"])
async def test_a_redirect_back_to_the_first_server_gets_the_credential_again(trusted, kinds, kind):
    value = {"token": "Bearer t0ken-1", "login": f"Basic {SECRETS[-1]}"}[kind]

    def reply(heard):
        return redirect(f"{between.url}/x") if heard.path == "/x" else FILE(heard)

    async with (
        web_server(lambda heard: redirect(f"{server.url}/back"), trusted) as between,
        web_server(wants("Authorization", value, reply), trusted) as server,
    ):
        kinds["token"](server)
        url = f"{server.url}/x"
        assert await fetched(url.replace("://", "://ann:hush1234@") if kind == "login" else url) == CONTENT
    assert set(server.all("Authorization")) == {value}
    assert set(between.all("Authorization")) == {None}


@pytest.mark.parametrize("kind", ["token", "netrc", "header"])
async def test_a_thief_that_a_document_names_gets_nothing(trusted, kinds, kind):
    async with web_server(ranges(CONTENT), trusted) as thief:
        headers, _ = kinds[kind](thief)
        named = options(credentials=Credentials(headers)).named(Origin("server", "127.0.0.1"))
        async with opened(HTTPSource(f"{thief.url}/x", named)) as source:
            assert await collect(source, 0, len(CONTENT)) == CONTENT
    assert not any(secret in request for request in thief.heard for secret in SECRETS)


async def test_nothing_secret_goes_from_https_to_http(trusted, kinds):
    async with (
        web_server(FILE) as plain,
        web_server(lambda heard: redirect(f"{plain.url}/x"), trusted) as server,
    ):
        kinds["token"](server)
        assert await fetched(f"{server.url}/x", Credentials({"X-Key": SECRETS[3]}), vouched=True) == CONTENT
    assert "Bearer t0ken-1" in server.all("Authorization")
    assert not any(secret in request for request in plain.heard for secret in SECRETS)


async def test_a_rule_lets_the_token_go_along_to_another_server(trusted, kinds, write):
    async with (
        web_server(wants("Authorization", "Bearer t0ken-1"), trusted) as pool,
        web_server(lambda heard: redirect(f"{pool.url}/x"), trusted) as door,
    ):
        kinds["token"](door)
        error = await failure(f"{door.url}/x")
        assert type(error) is PermissionRefused
        assert f"you did not name {pool.url} yourself" in error.remedy
        assert f'[hosts."{place_of(pool)}"] with use = ["token"]' in error.remedy
        rule = f'[hosts."{place_of(door)}"]\nuse = ["token"]\nalso = ["{place_of(pool)}"]\n'
        write(".config/coget/config.toml", rule)
        assert await fetched(f"{door.url}/x") == CONTENT


async def test_a_token_that_expires_in_the_middle_is_read_again(trusted, write, monkeypatch):
    valid = ["t0ken-1"]
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(write("token", "t0ken-1")))
    serve = ranges(CONTENT)

    def reply(heard):
        return serve(heard) if heard.header("Authorization") == f"Bearer {valid[0]}" else answer("401 Expired")

    async with web_server(reply, trusted) as server, opened(source_of(f"{server.url}/x")) as source:
        assert await collect(source, 0, 100) == CONTENT[:100]
        valid[0] = "t0ken-2"
        with pytest.raises(PermissionRefused) as caught:
            await collect(source, 100, 200)
        assert not caught.value.permanent, "a new token may come"
        write("token", "t0ken-2")
        assert await collect(source, 100, 200) == CONTENT[100:200]
        asked = len(server.heard)
        assert await collect(source, 200, 300) == CONTENT[200:300]
        assert server.all("Authorization")[asked:] == ["Bearer t0ken-2"]


async def test_a_download_goes_on_when_its_token_is_renewed(trusted, write, monkeypatch, tmp_path):
    from coalloc.api import Request, download

    monkeypatch.setenv("COGET_HISTORY", "off")
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(write("token", "t0ken-1")))
    content, valid, served = random_file(tmp_path / "expected", 3 << 20), "t0ken-1", 0
    serve = ranges(content)

    def reply(heard):
        nonlocal valid, served
        if heard.header("Authorization") != f"Bearer {valid}":
            asyncio.get_running_loop().call_soon(write, "token", valid)  # the new one comes only now
            return answer("401 Expired")
        if heard.startswith("GET") and heard.header("Range"):
            served += 1
            valid = f"t0ken-{1 + served // 2}"
        return serve(heard)

    async with web_server(reply, trusted) as server:
        request = Request(f"{server.url}/x", tmp_path / "x", strategy="conservative", blocks=6)
        (report,) = await download(request)
    assert (tmp_path / "x").read_bytes() == content
    assert len({*server.all("Authorization")}) > 2
    assert report.sources[0].outcome == "ok"


async def test_several_sessions_with_two_real_servers_have_the_token(trusted, monkeypatch, tmp_path):
    from coalloc.api import Request, download

    monkeypatch.setenv("COGET_HISTORY", "off")
    monkeypatch.setenv("BEARER_TOKEN", "t0ken-1")
    (tmp_path / "export").mkdir()
    content = random_file(tmp_path / "export" / "x", 8 << 20)
    guard = {
        "zones": 'map $http_authorization $known { default 0; "Bearer t0ken-1" 1; }',
        "more": "if ($known = 0) { return 401; }",
        "certificate": (trusted.localhost.certificate, trusted.localhost.key),
    }
    with (
        Nginx(tmp_path / "export", tmp_path / "one", **guard) as one,
        Nginx(tmp_path / "export", tmp_path / "two", **guard) as two,
    ):
        (report,) = await download(Request([one.url("x"), two.url("x")], tmp_path / "x", streams=2, strategy="brute"))
        monkeypatch.delenv("BEARER_TOKEN")
        assert type(await failure(one.url("x"))) is PermissionRefused
    assert (tmp_path / "x").read_bytes() == content
    assert all(source.bytes for source in report.sources)


async def test_a_refusal_names_what_was_sent_and_what_was_not(trusted, write, monkeypatch):
    async with web_server(lambda heard: answer("403 Forbidden"), trusted) as server:
        url = f"{server.url}/x"
        error = await failure(url)
        assert f"{server.url} got no credential" in error.remedy
        assert "BEARER_TOKEN_FILE" in error.remedy
        path = write("token", "t0ken-1", 0o644)
        monkeypatch.setenv("BEARER_TOKEN_FILE", str(path))
        what = f"did not get the token in {path} (BEARER_TOKEN_FILE), because others may read it"
        assert what in (await failure(url)).remedy
        path.chmod(0o600)
        error = await failure(url)
        assert f"{server.url} got the token in {path}" in error.remedy
        assert error.permanent


async def test_the_reason_of_a_refusal_is_the_one_that_head_gets(trusted):
    """XRootD answers a GET without a valid token by 500."""
    said = {"HEAD": "403 Forbidden", "GET": "500 Internal Server Error"}
    async with web_server(lambda heard: answer(said[heard.split()[0]]), trusted) as server:
        error = await failure(f"{server.url}/x")
    assert type(error) is PermissionRefused
    assert "403" in error.message


async def test_a_server_that_repeats_a_secret_is_not_shown_with_it(trusted, write):
    write(".netrc", "machine 127.0.0.1 login ann password hush1234")
    said = f"401 no hush1234 nor {SECRETS[-1]} nor k3y-of-header nor Bearer"
    async with web_server(lambda heard: answer(said), trusted) as server:
        error = await failure(f"{server.url}/x", Credentials({"X-Key": "k3y-of-header"}))
    assert not any(secret in f"{error} {error.remedy}" for secret in SECRETS)
    assert "no ... nor ... nor ..." in error.message


@asynccontextmanager
async def archive(grid):
    """A data server and its login server, as NASA Earthdata has them; yield both."""
    serve = ranges(CONTENT)

    def data(heard):
        if heard.header("Cookie") == "session=c00kie":
            return serve(heard)
        if heard.path.startswith("/login?code=g00d"):
            return redirect("/x", Set_Cookie="session=c00kie; Path=/; Secure; HttpOnly; Domain=127.0.0.1")
        return redirect(f"{login.url}/authorize?back={server.url}/login")

    def authorize(heard):
        return redirect(f"{server.url}/login?code=g00d", Set_Cookie="sso=0ther; Path=/")

    asks = wants("Authorization", f"Basic {SECRETS[-1]}", authorize)
    async with web_server(asks, grid) as login, web_server(data, grid) as server:
        yield server, login


async def test_a_login_server_gets_the_password_and_the_data_server_the_cookie(trusted, write):
    write(".netrc", "machine 127.0.0.1 login ann password hush1234")
    async with archive(trusted) as (server, login):
        write(".config/coget/config.toml", f'[hosts."{place_of(login)}"]\nuse = ["netrc"]\n')
        own = Credentials()
        named = own.named(Origin("server"))  # so that the data server, on the same host, gets no login itself
        assert await fetched(f"{server.url}/x", named) == CONTENT
        assert not any(server.all("Authorization"))
        assert not any("c00kie" in request for request in login.heard)
        assert not any("0ther" in request for request in server.heard)
        logins = len(login.heard)
        assert await fetched(f"{server.url}/x", own.named(Origin("server"))) == CONTENT
        assert len(login.heard) == logins, "a second session uses the cookie"
        assert await fetched(f"{server.url}/x", Credentials().named(Origin("server"))) == CONTENT
        assert len(login.heard) > logins, "another transfer logs in again"


async def test_a_cookie_is_for_the_paths_that_its_server_names(trusted):
    serve = ranges(CONTENT)

    def reply(heard):
        if heard.path == "/begin":
            return redirect("/in/x", Set_Cookie="id=c00kie; Path=/in")
        return redirect("/input/x") if heard.path == "/in/x" else serve(heard)

    async with web_server(reply, trusted) as server:
        assert await fetched(f"{server.url}/begin") == CONTENT
    cookies = {heard.path: heard.header("Cookie") for heard in server.heard}
    assert cookies == {"/begin": None, "/in/x": "id=c00kie", "/input/x": None}


async def test_a_server_cannot_fill_the_memory_with_cookies(trusted):
    serve, number = ranges(CONTENT), itertools.count()

    def reply(heard):
        if int(heard.path.strip("/x") or 0) < 9:
            names = [f"{next(number)}" for _ in range(20)]
            cookies = "\r\nSet-Cookie: ".join(["long=" + "y" * 9000, *(f"c{name}=v" for name in names)])
            return redirect(f"/x{int(heard.path.strip('/x') or 0) + 1}", Set_Cookie=cookies)
        return serve(heard)

    own = Credentials()
    async with web_server(reply, trusted) as server:
        assert await fetched(f"{server.url}/x", own) == CONTENT
    assert [len(jar) for jar in own.jars.values()] == [50]
    assert not any("long=" in request for request in server.heard)


async def test_a_server_cannot_fill_the_memory_with_paths_of_one_cookie(trusted):
    serve, paths = ranges(CONTENT), itertools.count()

    def reply(heard):
        hop = int(heard.path.strip("/x") or 0)
        cookies = [f"a=b; Path=/{next(paths)}" for _ in range(20)]
        if hop == 8:
            cookies = [
                "a=new; Path=/0",
                "long=v; Path=/" + "y" * 5000,
                *["other=v; Domain=other.example"] * 48,
                "late=v",
            ]
        return redirect(f"/x{hop + 1}", Set_Cookie="\r\nSet-Cookie: ".join(cookies)) if hop < 9 else serve(heard)

    own = Credentials()
    async with web_server(reply, trusted) as server:
        assert await fetched(f"{server.url}/x", own) == CONTENT
        again = Credentials()
        assert await fetched(f"{server.url}/x8", again) == CONTENT
    (full,), (last,) = own.jars.values(), again.jars.values()
    assert len(full) == 50
    assert [cookie.value for cookie in full if cookie.path == "/0"] == ["new"]
    assert [(cookie.name, cookie.path) for cookie in last] == [("a", "/0")], "only the first 50 of an answer are read"


async def test_a_certificate_is_shown_to_a_server_that_asks(trusted, monkeypatch, alice, alice_proxy, write, tmp_path):
    more = "ssl_verify_client optional; ssl_client_certificate {}; if ($ssl_client_verify != SUCCESS) {{ return 403; }}"
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "x").write_bytes(CONTENT)
    with Nginx(
        tmp_path / "export",
        tmp_path / "run",
        certificate=(trusted.localhost.certificate, trusted.localhost.key),
        more=more.format(trusted.authority.certificate),
    ) as nginx:
        url = nginx.url("x")
        error = await failure(url)
        assert (type(error), "got no credential" in error.remedy) == (PermissionRefused, True)
        rule = f'[hosts."127.0.0.1:{nginx.port}"]\ncertificate = "{alice.certificate}"\nkey = "{alice.key}"\n'
        write(".config/coget/config.toml", rule)
        assert await fetched(url) == CONTENT
        named = options(credentials=Credentials()).named(Origin("server", "127.0.0.1"))
        async with opened(HTTPSource(url, named)) as source:
            assert await collect(source, 0, 10) == CONTENT[:10]
        write(".config/coget/config.toml", "")
        monkeypatch.setenv("X509_USER_CERT", str(alice.certificate))
        monkeypatch.setenv("X509_USER_KEY", str(alice.key))
        assert await fetched(url) == CONTENT
        named = options(credentials=Credentials()).named(Origin("server", "127.0.0.1"))
        source = HTTPSource(url, named)
        with pytest.raises(PermissionRefused) as caught:
            await source.open()
        await source.close()
        assert 'use = ["certificate"]' in caught.value.remedy


async def test_a_server_that_insists_on_a_certificate_is_reported_as_such(trusted, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted.localhost.certificate, trusted.localhost.key)
    context.load_verify_locations(trusted.authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED

    def refuse(listener):
        with listener.accept()[0] as sock:
            tls = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            with pytest.raises(ssl.SSLError):
                tls.do_handshake()
            with socket.socket(fileno=tls.detach()) as rest:
                while rest.recv(65536):  # or the kernel would reset the connection, and drop the alert
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = asyncio.create_task(asyncio.to_thread(refuse, listener))
        error = await failure(f"https://127.0.0.1:{listener.getsockname()[1]}/x")
        await refusing
    assert type(error) is PermissionRefused
    assert "certificate required" in error.message
    assert "got no credential" in error.remedy


async def test_a_grids_authorities_are_trusted_within_their_policies(home, grid, monkeypatch, tmp_path):
    async with web_server(ranges(CONTENT), grid) as server:
        assert "not trusted" in (await failure(f"{server.url}/x")).message
        monkeypatch.setenv("X509_CERT_DIR", str(grid.trusted))
        assert await fetched(f"{server.url}/x") == CONTENT
        strict = tmp_path / "strict"
        strict.mkdir()
        (hashed,) = grid.trusted.glob("*.0")
        (strict / hashed.name).write_bytes(hashed.read_bytes())
        policy = hashed.with_suffix(".signing_policy").read_text()
        (strict / f"{hashed.stem}.signing_policy").write_text(policy.replace('"/*"', '"/O=Other/*"'))
        monkeypatch.setenv("X509_CERT_DIR", str(strict))
        assert "may not sign" in (await failure(f"{server.url}/x")).message
        (strict / f"{hashed.stem}.signing_policy").write_text(policy)
        grid.revoke(grid.localhost, to=strict / f"{hashed.stem}.r0")
        asked = len(server.heard)
        assert "was revoked" in (await failure(f"{server.url}/x")).message
        assert len(server.heard) == asked, "nothing is sent to a revoked server"
        monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
        assert await fetched(f"{server.url}/x") == CONTENT, "trusted otherwise, so the grid's files do not bind it"
        monkeypatch.delenv("SSL_CERT_FILE")
        usual = tmp_path / "usual"
        usual.mkdir()
        (usual / "README").write_text("no certificate")
        (usual / f"{grid.hashed()}.1").write_text("neither")
        (usual / f"{grid.hashed()}.0").write_bytes(grid.authority.certificate.read_bytes())
        monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path / 'none'}:{usual}")
        assert await fetched(f"{server.url}/x") == CONTENT, "a directory of usual authorities counts as their file"
        monkeypatch.delenv("SSL_CERT_DIR")
        assert "was revoked" in (await failure(f"{server.url}/x")).message


async def test_a_token_goes_through_a_proxy_unseen(trusted, monkeypatch):
    """The proxy is one that only connects; what it sees besides is TLS."""
    seen = []

    async def connect(reader, writer):
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        host, port = seen[0].split()[1].decode().split(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

        async def pump(source, sink):
            while data := await source.read(65536):
                seen.append(data)
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

    monkeypatch.setenv("BEARER_TOKEN", "t0ken-1")
    proxy = await asyncio.start_server(connect, "127.0.0.1")
    async with proxy, web_server(wants("Authorization", "Bearer t0ken-1"), trusted) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        assert await fetched(f"{server.url}/x", Credentials({"X-Key": SECRETS[3]})) == CONTENT
        assert seen[0].startswith(b"CONNECT 127.0.0.1:")
        assert not any(secret.encode() in b"".join(seen) for secret in SECRETS)
        asked = len(seen)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await fetched(f"{server.url}/x") == CONTENT
        assert len(seen) == asked


async def test_a_metalink_is_fetched_with_the_token(trusted, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", "t0ken-1")
    async with web_server(wants("Authorization", "Bearer t0ken-1"), trusted) as server:
        found = await http_documents.get(f"{server.url}/x.meta4", 1 << 20, credentials=Credentials())
    assert found.content == CONTENT


async def test_an_oidc_agent_renews_the_token_in_the_middle(trusted, write, monkeypatch, tmp_path):
    monkeypatch.setattr(known, "FRESH", -1.0)
    issued, valid = ["t0ken-0"], []
    serve = ranges(CONTENT)

    def next_token():
        issued.append(f"t0ken-{len(issued)}")
        return issued[-1]

    def reply(heard):
        expired = heard.header("Authorization") in valid or heard.header("Authorization") != f"Bearer {issued[-1]}"
        return answer("401 Expired") if expired else serve(heard)

    with closing(OIDCAgent(tmp_path / "agent")) as agent:
        for name, value in agent.environment.items():
            monkeypatch.setenv(name, value)
        issuing = provider(lambda: issuer.url, next_token, 60)  # shorter than coget wants: each one is a new one
        async with web_server(issuing) as issuer, web_server(reply, trusted) as server:
            await asyncio.to_thread(agent.add, issuer.url)
            write(".config/coget/config.toml", f'[hosts."{place_of(server)}"]\noidc_agent = "{ACCOUNT}"\n')
            async with opened(source_of(f"{server.url}/x")) as source:
                assert await collect(source, 0, 100) == CONTENT[:100]
                valid.append(f"Bearer {issued[-1]}")
                assert await collect(source, 100, 200) == CONTENT[100:200]
            assert len({*server.all("Authorization")}) > 1


async def test_an_agent_that_gives_no_token_is_reported(trusted, home, write, monkeypatch):
    async with web_server(ranges(CONTENT), trusted) as server:
        write(".config/coget/config.toml", f'[hosts."{place_of(server)}"]\noidc_agent = "wlcg"\n')
        monkeypatch.setenv("PATH", str(home / "bin"))
        assert "install oidc-agent" in (await failure(f"{server.url}/x")).remedy
        (home / "bin").mkdir()
        write("bin/oidc-token", "#!/bin/sh\necho t0ken-1; echo 'no such account' >&2; exit 1\n", 0o700)
        error = await failure(f"{server.url}/x")
        assert "no such account" in error.message
        assert "t0ken-1" not in error.message
        write(".config/coget/config.toml", f'[hosts."{place_of(server)}"]\noidc_agent = "--help"\n')
        assert "no name of an account" in (await failure(f"{server.url}/x")).message
    assert server.heard == []
