"""Rules of the user for single web servers: the tables `hosts` of config.toml, and of tokens.toml for secrets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from coalloc.config import host_tables
from coalloc.credentials.bearer import TOKEN
from coalloc.credentials.given_headers import header_fields
from coalloc.credentials.origins import host_port
from coalloc.errors import UsageError

__all__ = ["HostRule", "HostRules", "Usual", "read_rules"]

Usual = Literal["token", "netrc", "certificate"]
"""Credentials that the user has for servers in general."""
FORM = (
    'write [hosts."HOST:PORT"], and below it lines such as bearer_token_file = "/path"; see docs/howto/credentials.md'
)
PUBLIC = ("also", "bearer_token_file", "certificate", "key", "oidc_agent", "use")
SECRET = ("bearer_token", "headers")


@dataclass(frozen=True)
class HostRule:
    """The rule for a host, at one port or at the usual ones.

    :param place: HOST or HOST:PORT, as it is in the file
    :param use: the user's usual credentials that the server may get even if another server names it
    :param certificate: file of a certificate with its chain; `key` is the file of its key, perhaps the same
    :param oidc_agent: account of oidc-agent that gives tokens
    :param bearer_token: the token itself; `headers` are more headers
    """

    place: str
    use: frozenset[Usual] = frozenset()
    bearer_token_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    oidc_agent: str | None = None
    bearer_token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def has_token(self) -> bool:
        """Return whether the rule has a token of its own."""
        return bool(self.oidc_agent or self.bearer_token_file or self.bearer_token)


HostRules = Mapping[tuple[str, int | None], HostRule]
"""Rules by host and port; the port is None for the usual one."""


def read_rules() -> HostRules:
    """Return the user's rules.

    :raises UsageError: for an unreadable file, secrets that others may read, or an invalid rule
    """
    public, secret = host_tables()
    tables = [
        *_checked_tables("config.toml", public, PUBLIC),
        *_checked_tables("tokens.toml", secret, SECRET),
    ]
    joined: dict[str, dict[str, Any]] = {}
    for place, table in tables:
        joined.setdefault(place, {}).update(table)
    found: dict[tuple[str, int | None], HostRule] = {}
    further: dict[tuple[str, int | None], HostRule] = {}
    for place, table in joined.items():
        found[_host_port(place, place)] = rule = _rule(place, table)
        further |= {_host_port(each, place): rule for each in _texts(place, table, "also")}
    return {**further, **found}


def _checked_tables(file: str, tables: Any, allowed: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise UsageError(f"`hosts` in {file} must be a table of tables", FORM)
    for place, table in tables.items():
        if wrong := [key for key in table if key not in allowed]:
            other = "; it is a secret: write it in tokens.toml" if wrong[0] in SECRET else ""
            raise UsageError(f'`{wrong[0]}` is not a key of [hosts."{place}"] in {file}{other}', FORM)
        yield place, table


def _rule(place: str, table: Mapping[str, Any]) -> HostRule:
    use = _texts(place, table, "use")
    if wrong := [each for each in use if each not in get_args(Usual)]:
        raise UsageError(
            f'{wrong[0]!r} in `use` of [hosts."{place}"] is not a kind of credential',
            'choose of "token", "netrc" and "certificate"',
        )
    certificate = _path(place, table, "certificate")
    return HostRule(
        place,
        cast(frozenset[Usual], frozenset(use)),
        _path(place, table, "bearer_token_file"),
        certificate,
        _path(place, table, "key") or certificate,
        _text(place, table, "oidc_agent"),
        _token(place, table),
        header_fields(_texts(place, table, "headers")),
    )


def _host_port(text: str, place: str) -> tuple[str, int | None]:
    try:
        return host_port(text)
    except ValueError as error:
        raise UsageError(f'[hosts."{place}"]: {error}', FORM) from None


def _texts(place: str, table: Mapping[str, Any], key: str) -> list[str]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise UsageError(f'`{key}` of [hosts."{place}"] must be a list of strings', FORM)
    return found


def _text(place: str, table: Mapping[str, Any], key: str) -> str | None:
    found = table.get(key)
    if found is not None and not (isinstance(found, str) and found):
        raise UsageError(f'`{key}` of [hosts."{place}"] must be a string', FORM)
    return found


def _token(place: str, table: Mapping[str, Any]) -> str | None:
    token = _text(place, table, "bearer_token")
    if token is not None and not TOKEN.fullmatch(token):
        raise UsageError(f'`bearer_token` of [hosts."{place}"] has characters that no token has', "copy it again")
    return token


def _path(place: str, table: Mapping[str, Any], key: str) -> Path | None:
    text = _text(place, table, key)
    if text is None:
        return None
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise UsageError(f'`{key}` of [hosts."{place}"] must be an absolute path', "begin it with / or ~/")
    return path
