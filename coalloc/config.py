"""The user's permanent settings: the broker, the site, the networks that servers may name, routes, and secrets.

`config.toml` and `tokens.toml` are in ~/.config/coget, or below XDG_CONFIG_HOME. COGET_BROKER, COGET_SITE and
COGET_BROKER_TOKEN (or the file that COGET_BROKER_TOKEN_FILE names) take precedence; the token is for the host of
COGET_BROKER. tokens.toml has a token for each broker, tickets for depots, and secrets for hosts.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from coalloc.errors import UsageError
from coalloc.safe_text import redact
from coalloc.util.addresses import AddressPolicy, parse_networks
from coalloc.util.secret_files import secret_variable

__all__ = [
    "DEPOTS_FORM",
    "BrokerAccess",
    "CatalogueSettings",
    "S3Rule",
    "access",
    "access_with",
    "catalogue_settings",
    "depot_tickets",
    "host_tables",
    "limit_rate",
    "own_depots",
    "own_policy",
    "own_routes",
    "s3_rule",
    "some_access",
    "token_place",
]

OTHERS = ("networks", "via", "depots", "hosts", "s3", "limit_rate", "names")
"""Values with functions of their own."""
DEPOTS_FORM = 'write [depots."HOST:PORT"], then ticket = "..." and key = "..." as coget-depot ticket prints them'
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class BrokerAccess(NamedTuple):
    """A broker's address, the token for it, and the site of this user's transfers."""

    url: str
    token: str | None
    site: str | None


class S3Rule(NamedTuple):
    """The service behind a name in s3://NAME/KEY; None for what the AWS tools are set to.

    :param profile: name of a profile in ~/.aws
    :param anonymous: whether requests are not signed
    """

    bucket: str | None = None
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False


class CatalogueSettings(NamedTuple):
    """Addresses of catalogues; `drs` has those of DRS services, by host or prefix in lower case."""

    doi: str = "https://api.datacite.org"
    esgf: str = "https://esgf-node.llnl.gov/esg-search/search"
    identifiers: str = "https://resolver.api.identifiers.org"
    drs: Mapping[str, str] = MappingProxyType({})


def access(named: str | None) -> BrokerAccess | None:
    """Return the broker to use: the named one, or the user's usual one; None if there is none.

    :raises UsageError: for an invalid address, an unreadable file, tokens that others may read, or a token that would
        be sent unencrypted
    """
    settings = _texts("config.toml")
    usual = os.environ.get("COGET_BROKER") or settings.get("broker")
    url = named or usual
    if not url:
        return None
    token = _token(_host(url), usual)
    site = os.environ.get("COGET_SITE") or settings.get("site")
    if site and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", site):
        raise UsageError(f"{site!r} is not a valid site name", "use letters, digits and _.-")
    return access_with(url, token, site)


def access_with(url: str, token: str | None, site: str | None = None) -> BrokerAccess:
    """Return the access to a broker with a token.

    :raises UsageError: for an invalid address or token, or a token that would be sent unencrypted
    """
    host = _host(url)
    if token and not re.fullmatch("[!-~]+", token):
        raise UsageError(f"the token for {host} contains a space or another invalid character", "copy it again")
    if token and urlsplit(url).scheme == "http" and urlsplit(url).hostname not in LOOPBACK:
        raise UsageError(f"the token for {host} would be sent unencrypted", "use https:// for the broker")
    return BrokerAccess(url.rstrip("/"), token, site)


def some_access(named: str | None) -> BrokerAccess:
    """Return the broker to use, as `access` does.

    :raises UsageError: also when none is known
    """
    known = access(named)
    if known is None:
        raise UsageError("no broker is configured", "give one with --broker, or set COGET_BROKER")
    return known


def token_place(url: str) -> tuple[Path, str]:
    """Return the file for this user's tokens, and the key of a broker's token in it.

    :raises UsageError: for an invalid address
    """
    return _path("tokens.toml"), _host(url)


def own_policy() -> AddressPolicy:
    """Return the policy of addresses for URLs that this user gives: any address is allowed.

    URLs from servers may also lead to the `networks` of config.toml, a list such as ["10.1.0.0/16"].

    :raises UsageError: for an unreadable file, or an invalid network
    """
    named = _table("config.toml").get("networks", [])
    try:
        return AddressPolicy(networks=parse_networks(named if isinstance(named, list) else [named]))
    except ValueError as error:
        raise UsageError(
            f"invalid `networks` in config.toml: {error}",
            'write networks = ["10.1.0.0/16"]; link-local ones are never allowed',
        ) from None


def limit_rate() -> object:
    """Return the rate of all coget processes of this user on this machine together, as written; None for no limit.

    :raises UsageError: for an unreadable file
    """
    return _table("config.toml").get("limit_rate")


def own_routes() -> tuple[str, ...]:
    """Return the routes over depots that this user always takes: `via` in config.toml, a string or a list.

    :raises UsageError: for an unreadable file, or another value
    """
    return _list("via", 'write via = "DEPOT,DEPOT", or a list of HOST=ROUTE')


def own_depots() -> tuple[str, ...]:
    """Return the depots among which automatic routes choose: `depots` in config.toml, a string or a list.

    :raises UsageError: for an unreadable file, or another value
    """
    return _list("depots", 'write depots = ["HOST:PORT"]')


def s3_rule(name: str) -> S3Rule | None:
    """Return the rule for s3://NAME/...: the table [s3.NAME] of config.toml; None if there is none.

    :raises UsageError: for an unreadable file, or an invalid table
    """
    rules = _table("config.toml").get("s3", {})
    rule = rules.get(name) if isinstance(rules, dict) else rules
    if rule is None:
        return None
    if not isinstance(rule, dict) or not all(
        field in S3Rule._fields and isinstance(value, bool if field == "anonymous" else str)
        for field, value in rule.items()
    ):
        fields = ", ".join(S3Rule._fields[:-1])
        raise UsageError(f"invalid [s3.{name}] in config.toml", f"write {fields} as strings, or anonymous = true")
    return S3Rule(**rule)


def catalogue_settings() -> CatalogueSettings:
    """Return the addresses of catalogues: the table [names] of config.toml, without slashes at their ends.

    :raises UsageError: for an unreadable file, or an invalid table
    """
    named = _table("config.toml").get("names", {})
    fields = named if isinstance(named, dict) else {"": named}
    services = fields.get("drs", {})
    urls = {name: url for name, url in fields.items() if name != "drs"}
    valid = isinstance(services, dict) and all(map(_is_web, (*urls.values(), *services.values())))
    if not valid or not urls.keys() <= set(CatalogueSettings._fields):
        raise UsageError(
            "invalid [names] in config.toml", 'write doi, esgf or identifiers = "https://...", and [names.drs]'
        )
    stripped = {name: url.rstrip("/") for name, url in urls.items()}
    return CatalogueSettings(**stripped, drs={name.lower(): url.rstrip("/") for name, url in services.items()})


def _is_web(url: object) -> bool:
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isprintable() else urlsplit("")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _list(name: str, remedy: str) -> tuple[str, ...]:
    named = _table("config.toml").get(name, [])
    texts = named if isinstance(named, list) else [named]
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"`{name}` in config.toml must be a string or a list of strings", remedy)
    return tuple(texts)


def depot_tickets() -> Mapping[str, tuple[str, bytes]]:
    """Return this user's tickets and their keys by depot, from the table `depots` of tokens.toml.

    :raises UsageError: for an unreadable file, tickets that others may read, or an invalid table
    """
    named = _table("tokens.toml", secret=True).get("depots", {})
    if not isinstance(named, dict):
        raise UsageError("`depots` in tokens.toml must be a table", DEPOTS_FORM)
    return {depot: _depot_ticket(depot, fields) for depot, fields in named.items()}


def _depot_ticket(depot: str, fields: Any) -> tuple[str, bytes]:
    try:
        return str(fields["ticket"]), bytes.fromhex(fields["key"])
    except (TypeError, KeyError, ValueError):
        raise UsageError(f'invalid [depots."{depot}"] in tokens.toml', DEPOTS_FORM) from None


def host_tables() -> tuple[Any, Any]:
    """Return `hosts` of config.toml and of tokens.toml, which `credentials.rules` checks; empty tables if absent.

    :raises UsageError: for an unreadable file, or secrets that others may read
    """
    return _table("config.toml").get("hosts", {}), _table("tokens.toml", secret=True).get("hosts", {})


def _host(url: str) -> str:
    """Return host and port in the form of the keys of tokens.toml."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in parts.netloc:
            return parts.netloc.lower()
    except ValueError:
        pass
    raise UsageError(
        f"{redact(url)!r} is not an address of a broker", "write it as https://HOST[:PORT], without a token"
    )


def _token(host: str, usual: str | None) -> str | None:
    token = (secret_variable("COGET_BROKER_TOKEN") or "").strip()
    if token and usual and _host(usual) == host:
        return token
    return _texts("tokens.toml", secret=True).get(host)


def _texts(name: str, secret: bool = False) -> Mapping[str, str]:
    """Return all strings of a file.

    :raises UsageError: when a value other than those of `OTHERS` is not a string
    """
    table = {key: value for key, value in _table(name, secret).items() if key not in OTHERS}
    for key, value in table.items():
        if not isinstance(value, str):
            raise UsageError(f"`{key}` in {name} must be a string", f'write {key} = "..."')
    return table


def _path(name: str) -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "coget" / name


def _table(name: str, secret: bool = False) -> Mapping[str, Any]:
    path = _path(name)
    try:
        with path.open("rb") as file:
            import tomllib  # most users have no such file

            if secret and os.fstat(file.fileno()).st_mode & 0o077:
                raise UsageError(f"others may read the tokens in {path}", f"run: chmod 600 {path}")
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "make it readable for you") from None
    except ValueError as error:  # invalid TOML, or its encoding
        example = '"broker.example" = "TOKEN"' if secret else 'broker = "https://broker.example"'
        raise UsageError(f"{path} is not TOML: {error}", f"write lines like {example}") from None
