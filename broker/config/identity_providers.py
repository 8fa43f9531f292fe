"""The providers of users' identities: `[[issuer]]`, `[login]` and `[introspection]` of the broker's TOML file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from broker.config.document import document
from broker.errors import Invalid
from broker.models.callers import ROLES, Role
from broker.models.subjects import LONGEST_PART
from coalloc.safe_text import redact

__all__ = ["IntrospectionSettings", "Issuer", "ProviderSettings", "introspection", "issuers", "provider", "texts"]

ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""The accepted signature algorithms: no HMAC, with which any holder of the verification key could sign tokens."""


class Issuer(NamedTuple):
    """An issuer whose signed tokens are accepted.

    :param url: issuer's URL as in the tokens
    :param audience: accepted audiences: a token must have one of these names of the broker
    :param roles: roles by scope or group
    :param algorithms: accepted signature algorithms
    """

    url: str
    audience: tuple[str, ...]
    roles: Mapping[str, Role]
    algorithms: tuple[str, ...] = ("RS256", "ES256")


class IntrospectionSettings(NamedTuple):
    """A service that describes opaque tokens (RFC 7662).

    :param url: address of the service
    :param client_id: id of the broker at the service
    :param roles: roles by scope or group
    :param audience: accepted audiences: a token must have one of these names of the broker
    :param issuer: issuer of all its tokens; empty if not known
    """

    url: str
    client_id: str
    client_secret: str
    roles: Mapping[str, Role]
    audience: tuple[str, ...]
    issuer: str = ""


class ProviderSettings(NamedTuple):
    """An identity provider for logins with a browser (OpenID Connect).

    :param issuer: URL of one of the `[[issuer]]` entries, whose roles apply
    :param client_id: id of the broker at the provider
    :param scope: scopes that the broker requests
    """

    issuer: str
    client_id: str
    client_secret: str
    scope: str = "openid profile email"


def issuers(path: Path) -> tuple[Issuer, ...]:
    """Return the issuers in `[[issuer]]` of a TOML file, with url, audience and roles, and optionally algorithms.

    :raises Invalid: naming the file and the invalid entry
    """
    return tuple(_issuer(path, entries) for entries in document(path).get("issuer", []))


def provider(path: Path) -> ProviderSettings | None:
    """Return `[login]` of a TOML file, with issuer, client_id, client_secret, and optionally scope.

    :raises Invalid: naming the file and the invalid entry
    """
    entries = document(path).get("login")
    if entries is None:
        return None
    remedy = 'write issuer = "https://...", as an [[issuer]] has it, client_id = "...", client_secret = "..."'
    _check_keys(path, "login", entries, ProviderSettings, remedy)
    if wrong := [key for key, value in entries.items() if not isinstance(value, str)]:
        raise Invalid(f"{path}: invalid [login]: {', '.join(wrong)} is not a string", remedy)
    login = ProviderSettings(**entries)
    if login.issuer not in {issuer.url for issuer in issuers(path)}:
        raise Invalid(
            f"{path}: invalid [login]: issuer {redact(login.issuer)} is not one of the [[issuer]] sections", remedy
        )
    return login


def introspection(path: Path) -> IntrospectionSettings | None:
    """Return `[introspection]` of a TOML file: url, client_id, client_secret, roles; optionally audience and issuer.

    :raises Invalid: naming the file and the invalid entry
    """
    entries = document(path).get("introspection")
    if entries is None:
        return None
    remedy = 'write url = "https://...", client_id = "...", client_secret = "...", roles = { "SCOPE" = "reader" }'
    entries = {"audience": entries.get("client_id"), **entries}
    _check_keys(path, "introspection", entries, IntrospectionSettings, remedy)
    plain = ("url", "client_id", "client_secret", "issuer")
    try:
        if wrong := [key for key in plain if not isinstance(entries.get(key, ""), str)]:
            raise ValueError(f"{', '.join(wrong)} is not a string")
        found = IntrospectionSettings(**entries)._replace(
            roles=_roles(entries["roles"]), audience=_audience(entries["audience"])
        )
        if not _is_identity_url(found.url):
            raise ValueError(f"url {redact(found.url)} is not the URL of a server")
        if found.issuer and not _is_identity_url(found.issuer):
            raise ValueError(f"issuer {redact(found.issuer)} is not the URL of an issuer")
    except ValueError as error:
        raise Invalid(f"{path}: invalid [introspection]: {error}", remedy) from None
    return found


def _check_keys(
    path: Path,
    section: str,
    entries: Mapping[str, Any],
    kind: type[ProviderSettings | IntrospectionSettings],
    remedy: str,
) -> None:
    """Check that a section has all required keys of its settings, and no others.

    :raises Invalid: naming the section and the keys
    """
    if missing := [key for key in kind._fields if key not in entries and key not in kind._field_defaults]:
        raise Invalid(f"{path}: [{section}] has no {', '.join(missing)}", remedy)
    if strange := sorted(entries.keys() - set(kind._fields)):
        raise Invalid(f"{path}: invalid [{section}]: {', '.join(strange)} is unknown", remedy)


def _is_identity_url(url: str) -> bool:
    """Return whether a URL can name an issuer or a server that describes tokens.

    It must be http or https, with a host, without a fragment (OpenID Connect, section 2), printable, not too long.
    """
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    return (
        url.startswith(("http://", "https://"))
        and bool(host)
        and "#" not in url
        and url.isprintable()
        and len(url.encode()) <= LONGEST_PART
    )


def _some_texts(key: str, values: object) -> tuple[str, ...]:
    """Return a list of strings as a tuple. :raises ValueError: naming the key, if there is none or one is empty"""
    if not (found := texts(key, values)) or not all(found):
        raise ValueError(f"{key} is empty")
    return found


def _audience(names: object) -> tuple[str, ...]:
    return _some_texts("audience", [names] if isinstance(names, str) else names)


def _roles(roles: object) -> dict[str, Role]:
    if not isinstance(roles, Mapping):
        raise ValueError("roles is not a table")
    if not all(role in ROLES for role in roles.values()):
        raise ValueError(f"a role is not one of {', '.join(ROLES)}")
    return dict(roles)


def _issuer(path: Path, entries: Mapping[str, Any]) -> Issuer:
    remedy = 'write url = "https://...", audience = ["..."], roles = { "SCOPE" = "reader" }'
    try:
        algorithms = _some_texts("algorithms", entries.get("algorithms", ["RS256", "ES256"]))
        if not isinstance(entries["url"], str):
            raise ValueError("url is not a string")
        if strange := sorted(entries.keys() - set(Issuer._fields)):
            raise ValueError(f"{', '.join(strange)} is unknown")
        issuer = Issuer(entries["url"], _audience(entries["audience"]), _roles(entries["roles"]), algorithms)
    except KeyError as error:
        raise Invalid(f"{path}: [[issuer]] has no {error.args[0]}", remedy) from None
    except ValueError as error:
        raise Invalid(f"{path}: invalid [[issuer]]: {error}", remedy) from None
    if not _is_identity_url(issuer.url):
        raise Invalid(f"{path}: invalid [[issuer]]: url {redact(issuer.url)} is not the URL of an issuer", remedy)
    if refused := sorted(set(issuer.algorithms) - set(ASYMMETRIC)):
        raise Invalid(
            f"{path}: invalid [[issuer]]: algorithm {', '.join(refused)} is refused", f"use {', '.join(ASYMMETRIC)}"
        )
    return issuer


def texts(key: str, values: object) -> tuple[str, ...]:
    """Return a list of strings as a tuple. :raises ValueError: naming the key"""
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise ValueError(f"{key} is not a list of strings")
    return tuple(values)
