"""The headers that a web server gets: the user's own, as far as `decision` allows, the most special ones first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coalloc.credentials import bearer
from coalloc.credentials.basic import basic
from coalloc.credentials.decision import RequestFacts, why_not
from coalloc.credentials.rules import HostRule

if TYPE_CHECKING:
    from coalloc.credentials.known import Credentials

__all__ = ["HeaderChoice", "choose_headers"]

UNPROTECTED = "tokens and passwords of files and variables, because these are sent over https only"


@dataclass(frozen=True)
class HeaderChoice:
    """The headers that a server gets.

    :param what: descriptions of the credentials in them
    :param agent: account of oidc-agent, whose token is to be added; None for none
    :param kept: reasons why other credentials are not sent
    :param renewable: whether the token may be another one the next time
    """

    headers: Mapping[str, str] = field(repr=False)
    what: tuple[str, ...] = ()
    agent: str | None = None
    kept: tuple[str, ...] = ()
    renewable: bool = False


@dataclass(frozen=True)
class _Candidate:
    """A credential of the user for the header Authorization.

    :param what: description of it
    :param value: value of the header; None if it must not be sent, for the reason `problem`
    :param agent: account of oidc-agent that gives the value
    """

    what: str
    value: str | None = field(default=None, repr=False)
    problem: str = ""
    renewable: bool = False
    agent: str | None = None


def choose_headers(own: "Credentials", facts: RequestFacts, login: str | None) -> HeaderChoice:
    """Return the headers for a server.

    :param login: the header for user and password of the URL; None if it has none for this server
    """
    headers = dict(own.headers) if facts.typed else {}
    what = [f"the header {name} of --header" for name in headers]
    kept = [] if facts.typed or not own.headers else [f"--header, because you did not name {facts.server} yourself"]
    if facts.rule:
        headers = {**facts.rule.headers, **headers}
        what += [f'the header {name} of [hosts."{facts.rule.place}"]' for name in facts.rule.headers]
    if login:
        headers["Authorization"] = login
        return HeaderChoice(headers, ("user and password of the URL", *what), None, tuple(kept))
    if "Authorization" in headers or not own.own:
        return HeaderChoice(headers, tuple(what), None, tuple(kept))
    if not facts.protected:
        return HeaderChoice(headers, tuple(what), None, (*kept, UNPROTECTED))
    return _authorized(own, facts, HeaderChoice(headers, tuple(what), None, tuple(kept)))


def _authorized(own: "Credentials", facts: RequestFacts, choice: HeaderChoice) -> HeaderChoice:
    """Add the first usable one of: what the rule has, the login of netrc, and the discovered token."""
    kept = list(choice.kept)
    for each in _of_rule(facts.rule) if facts.rule and facts.rule.has_token else _usual(own, facts):
        if each.problem:
            kept.append(f"{each.what}, because {each.problem}")
            continue
        headers = choice.headers if each.value is None else {**choice.headers, "Authorization": each.value}
        return HeaderChoice(headers, (*choice.what, each.what), each.agent, tuple(kept), each.renewable)
    return HeaderChoice(choice.headers, choice.what, None, tuple(kept))


def _of_rule(rule: HostRule) -> Iterator[_Candidate]:
    """Yield the token of a rule. There is no substitute for it."""
    where = f'[hosts."{rule.place}"]'
    if rule.oidc_agent:
        what = f"a token of oidc-agent, account {rule.oidc_agent}, of {where}"
        yield _Candidate(what, renewable=True, agent=rule.oidc_agent)
    elif rule.bearer_token_file:
        yield _of_token(bearer.token_in(rule.bearer_token_file, f"the token in {rule.bearer_token_file} of {where}"))
    else:
        yield _Candidate(f"the token of {where} in tokens.toml", f"Bearer {rule.bearer_token}")


def _usual(own: "Credentials", facts: RequestFacts) -> Iterator[_Candidate]:
    """Yield the credentials that the user has for servers in general."""
    if own.netrc.problem:
        yield _Candidate(f"the logins in {own.netrc.path}", None, own.netrc.problem)
    if login := own.netrc.logins.get(facts.server.host):
        what = f"user and password in {own.netrc.path}"
        yield _Candidate(what, basic(login.user, login.password), why_not("netrc", facts) or "")
    if token := bearer.discover():
        reason = why_not("token", facts)
        yield _Candidate(token.what, None, reason) if reason else _of_token(token)


def _of_token(found: bearer.BearerToken) -> _Candidate:
    return _Candidate(found.what, f"Bearer {found.token}", found.problem, found.renewable)
