"""The decision which credentials a server gets, as a table over all facts."""

import os
from itertools import product

import pytest

from coalloc.credentials import Credentials
from coalloc.credentials.decision import RequestFacts, why_not
from coalloc.credentials.origins import WebOrigin
from coalloc.credentials.presenter import Presenter
from coalloc.credentials.rules import HostRule
from coalloc.model.replicas import Origin

USUAL = ("token", "netrc", "certificate")


def test_a_server_that_the_user_did_not_name_gets_nothing_without_a_rule():
    for usual, typed, protected, ruled, port in product(USUAL, (True, False), (True, False), (*USUAL, ""), (443, 8443)):
        rule = HostRule("se.example", frozenset({ruled})) if ruled else None
        allowed = why_not(usual, RequestFacts(WebOrigin("https", "se.example", port), typed, protected, rule)) is None
        assert allowed == (protected and (typed or ruled == usual or (usual == "netrc" and port == 443)))


@pytest.mark.parametrize(
    ("first", "server", "gets"),
    [
        ("https://se.example/x", "https://se.example/y", True),
        ("https://se.example:443/x", "https://se.example/y", True),
        ("https://SE.example/x", "https://se.example/y", True),
        ("https://se.example/x", "https://se.example:8443/y", False),
        ("https://se.example/x", "https://evil.example/y", False),
        ("https://se.example/x", "https://se.example.evil.example/", False),
        ("https://se.example/x", "https://sub.se.example/", False),
        ("https://se.example/x", "https://se.example./", False),
        ("https://se.example/x", "http://se.example/y", False),
        ("http://se.example/x", "https://se.example/y", False),
        ("http://se.example/x", "http://se.example/y", False),
        ("http://127.0.0.1:8080/x", "http://127.0.0.1:8080/y", True),
        ("http://127.0.0.1:8080/x", "http://127.0.0.1:8081/y", False),
        ("http://127.0.0.2:8080/x", "http://127.0.0.2:8080/x", False),
        ("https://evil.example\\@se.example/", "https://se.example/", False),
        ("https://se.example\\@evil.example/", "https://se.example/", False),
    ],
)
async def test_a_token_goes_to_the_very_server_of_the_url(home, monkeypatch, first, server, gets):
    monkeypatch.setenv("BEARER_TOKEN", "abc")
    found = await Presenter(first, Credentials()).headers(WebOrigin.of(server))
    assert ("Bearer abc" in found.values()) == gets


@pytest.mark.parametrize("kind", ["server", "document"])
async def test_a_replica_from_a_document_gets_only_what_a_rule_gives(home, write, monkeypatch, kind):
    monkeypatch.setenv("BEARER_TOKEN", "abc")
    write(".netrc", "machine odd.example login ann password hush\nmachine data.example login ann password hush")
    write(".config/coget/config.toml", '[hosts."se.example"]\nuse = ["token"]\n')
    known = Credentials({"X-Key": "k"}).named(Origin(kind))
    found = {
        url: dict(await Presenter(url, known).headers(WebOrigin.of(url)))
        for url in (
            "https://se.example/x",
            "https://se.example:8443/x",
            "https://other.example/x",
            "https://odd.example:1/x",
            "https://data.example/x",
            "http://data.example/x",
        )
    }
    assert [url for url, headers in found.items() if headers] == ["https://se.example/x", "https://data.example/x"]
    assert found["https://se.example/x"] == {"Authorization": "Bearer abc"}


async def test_the_most_special_credential_goes_first(home, write, monkeypatch):
    server, url = WebOrigin.of("https://se.example/"), "https://se.example/x"

    async def sent(headers=None, url=url):
        return (await Presenter(url, Credentials(headers)).headers(server)).get("Authorization")

    monkeypatch.setenv("BEARER_TOKEN", "found")
    assert await sent() == "Bearer found"
    write(".netrc", "machine se.example login ann password hush")
    assert (await sent()).startswith("Basic ")
    file = write("token", "of-rule")
    write(".config/coget/config.toml", f'[hosts."se.example"]\nbearer_token_file = "{file}"\n')
    assert await sent() == "Bearer of-rule"
    file.unlink()
    assert await sent() is None, "no other token takes its place"
    write(".config/coget/tokens.toml", '[hosts."se.example"]\nheaders = ["Authorization: Mine x"]\n')
    assert await sent() == "Mine x"
    assert await sent({"Authorization": "Typed y"}) == "Typed y"
    assert await sent({"Authorization": "Typed y"}, url.replace("://", "://me:word@")) == "Basic bWU6d29yZA=="


async def test_a_token_for_this_machine_does_not_go_over_a_proxy(home, monkeypatch):
    url = "http://localhost:8080/x"
    monkeypatch.setenv("BEARER_TOKEN", "abc")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert await Presenter(url, Credentials()).headers(WebOrigin.of(url)) == {}
    monkeypatch.setenv("no_proxy", "localhost")
    assert await Presenter(url, Credentials()).headers(WebOrigin.of(url))
    relayed = Presenter(url, Credentials(), lambda host: "depot.example:4433")
    assert await relayed.headers(WebOrigin.of(url)) == {}, "a depot would read it, and means its own machine"
    assert await relayed.headers(WebOrigin.of("https://localhost/")) == {}


async def test_without_own_credentials_nothing_is_read(home, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", "abc")
    monkeypatch.setenv("X509_USER_PROXY", "/some/proxy")
    presenter = Presenter("https://se.example/", Credentials(own=False))
    assert await presenter.headers(presenter.first) == {}
    assert presenter.certificate(presenter.first).shown is None
    assert "abc" not in presenter.summary() + presenter.remedy(presenter.first)


def test_a_certificate_at_its_usual_place_is_shown_by_rule_only(home, write, alice, alice_proxy, monkeypatch):
    presenter = Presenter("https://se.example/", Credentials())
    place = write(f"tmp/x509up_u{os.geteuid()}", alice_proxy.certificate.read_text())
    kept = presenter.certificate(presenter.first)
    assert kept.shown is None
    assert "no variable names it; to allow it" in kept.problem
    assert '[hosts."se.example"] with use = ["certificate"]' in kept.problem
    write(".config/coget/config.toml", '[hosts."se.example"]\nuse = ["certificate"]\n')
    presenter = Presenter("https://se.example/", Credentials())
    assert presenter.certificate(presenter.first).shown == (place, place)
    assert presenter.certificate(WebOrigin.of("https://other.example/")).shown is None
    place.chmod(0o644)
    assert "chmod 600" in presenter.certificate(presenter.first).problem
    monkeypatch.setenv("X509_USER_PROXY", str(alice_proxy.certificate))
    named = Presenter("https://new.example/", Credentials())
    assert named.certificate(named.first).shown
    assert named.certificate(WebOrigin.of("https://other.example/")).shown is None
    old = alice.proxy(days=-1)
    monkeypatch.setenv("X509_USER_PROXY", str(old.certificate))
    assert named.certificate(named.first).shown is None
    assert "expired" in named.certificate(named.first).problem
    for content in ("", "no certificate"):
        monkeypatch.setenv("X509_USER_PROXY", str(write("proxy", content)))
        assert "it cannot be read" in named.certificate(named.first).problem
    plain = Presenter("http://new.example/", Credentials())
    assert plain.certificate(plain.first).shown is None
