"""The decision which of the user's credentials a web server may get. Pure.

The reasons for the rules are in docs/explanation/trust.md.
"""

from typing import NamedTuple

from coalloc.credentials.origins import WebOrigin
from coalloc.credentials.rules import HostRule, HostRules, Usual

__all__ = ["RequestFacts", "rule_for", "to_allow", "why_not"]


class RequestFacts(NamedTuple):
    """The facts on which the decision depends.

    :param server: the server that is to be asked
    :param typed: whether the user named a URL of this very server; False if a server or a document led to it
    :param protected: whether nobody but the server can read what is sent
    :param rule: the user's rule for the server, if any
    :param federated: whether the server is a cache that was named by the director of a federation that the user named,
        and the file needs a token
    """

    server: WebOrigin
    typed: bool
    protected: bool
    rule: HostRule | None = None
    federated: bool = False


def rule_for(server: WebOrigin, rules: HostRules) -> HostRule | None:
    """Return the rule for a server: a rule without a port is for the usual port only.

    >>> rules = {("se.example", None): HostRule("se.example"), ("b.example", 8443): HostRule("b.example:8443")}
    >>> [rule_for(WebOrigin.of(url), rules) is None for url in ("https://se.example/x", "https://b.example:8443/")]
    [False, False]
    >>> [rule_for(WebOrigin.of(url), rules) is None for url in ("https://se.example:8443/x", "https://x.se.example/")]
    [True, True]
    """
    exact = rules.get((server.host, server.port))
    return exact or (rules.get((server.host, None)) if server.has_usual_port else None)


def why_not(usual: Usual, facts: RequestFacts) -> str | None:
    """Return why a server must not get one of the user's usual credentials; None if it may.

    A login of netrc is for a host, so the host gets it at the usual port even if another server leads there, as login
    services of archives need. Another port of the same host may belong to another user of it. The caches of a
    federation get the token: the user named the federation, and cannot know its caches.
    """
    if not facts.protected:
        return f"the connection to {facts.server} is not encrypted"
    if facts.typed or (facts.rule and usual in facts.rule.use):
        return None
    if usual == "netrc" and facts.server.has_usual_port:
        return None
    if usual == "token" and facts.federated:
        return None
    return f"you did not name {facts.server} yourself; {to_allow(usual, facts.server)}"


def to_allow(usual: Usual, server: WebOrigin) -> str:
    """Return how the user allows a server to get one of the usual credentials."""
    return f'to allow it, write [hosts."{server.place}"] with use = ["{usual}"] in config.toml'
