"""Removal of secrets and control characters from URLs and foreign text that are shown to users. Pure.

Foreign text comes from servers, brokers, documents and other programs. It may contain sequences that control a
terminal, line ends that forge lines, and characters that hide or reorder others.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote, unquote_plus, urlsplit, urlunsplit

__all__ = [
    "HIDDEN",
    "LONGEST_LINE",
    "escaped",
    "hide",
    "lines",
    "one_line",
    "redact",
    "redacted_text",
    "unsafe_reason",
    "without_login",
    "without_query",
]

PLAIN = re.compile(r"[A-Za-z0-9._@+][A-Za-z0-9._@+-]*")
"""User names and hosts that are safe to pass to programs, which treat a leading dash as an option."""
NUMERIC = re.compile(r"[0-9A-Fa-f:.]+(%25[A-Za-z0-9._-]+|%[A-Za-z0-9._-]+)?")
"""Text allowed between the brackets of an IPv6 address."""
HIDDEN = "..."
"""Replacement for a secret."""
WEB = ("http", "https", "dav", "davs")
"""Schemes of web servers, where a user name may be a token."""
SHORTEST, LONGEST, MOST = 4, 64, 32
"""Minimum characters of a secret that is searched for in text, maximum characters of it that are compared, and maximum
secrets per query or fragment.
"""

_REST = r"[^\s\"'<>`|\\]*"
# Patterns are compiled at their first use: most text has nothing to hide, and compiling them takes time at every start.
_URL = rf"(?i)[A-Za-z][A-Za-z0-9+.-]{{0,20}}(?:://|%(?:25)?3A%(?:25)?2F%(?:25)?2F){_REST}"
_LOGIN = r"(?<!:)//[^\s/@]{1,200}@"
_QUERY = r"\?[^\s\"'<>`|\\]+"
_HEADER = (
    r"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-(?:amz-security-token|auth-token|api-key))"
    r"([\"']?\s*[:=])\s*.+"
)
_HEADERS = re.compile("(?i)authorization|cookie|x-a")
_PAIR = (
    r"(?i)([\w.-]{0,24}(?:signature|(?<![a-z])sig|token|secret|passw(?:or)?d|credential|api[_-]?key)[\w.-]{0,24})"
    r"=[^\s&;,\"'<>]+"
)
_EXAMPLE = r"[a-z]+://USER:PASSWORD@HOST/\.\.\."
"""Example of a URL with a login, as shown in remedies."""
_BEARER = r"(?i)\b(bearer)\s+[\w.~+/=-]{8,}"


def redact(url: str) -> str:
    """Return the URL for messages, reports and logs: without password, query and fragment.

    A query may contain a key, as in signed URLs. For http and https, the user name may be a token and is removed too.
    The URL of a local file has no secrets and stays unchanged.

    >>> redact("ftp://ann:secret@host/file"), redact("https://token@host/file?X-Amz-Signature=secret#part")
    ('ftp://ann@host/file', 'https://host/file?...')
    >>> redact("file:///data/what?")
    'file:///data/what?'

    Malformed URLs are accepted, as messages show them too.

    >>> redact("ftp://ann:secret@[host/file?secret")
    'ftp://[host/file?...'
    """
    if re.match("file:", url, re.I):
        return url
    shown, mark, _ = without_login(url).partition("#")[0].partition("?")
    return f"{shown}?{HIDDEN}" if mark else shown


def without_query(url: str) -> str:
    """Return the URL for brokers: redacted, without a placeholder for the query.

    >>> without_query("https://token@host/file?X-Amz-Signature=secret#part")
    'https://host/file'
    """
    return redact(url).removesuffix(f"?{HIDDEN}")


def without_login(url: str) -> str:
    """Return the URL without its password and, for http and https, without its user name.

    The result is for the user's own files only, as its query may contain keys.

    >>> without_login("https://token@host/file?X-Amz-Signature=secret")
    'https://host/file?X-Amz-Signature=secret'
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises
    except ValueError:  # everything before an @ may be a password
        return re.sub("//.*@", "//", url)
    user, at, host = parts.netloc.rpartition("@")
    if at and parts.scheme in WEB:
        return urlunsplit(parts._replace(netloc=host))
    if parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}@{host}"))


def redacted_text(text: str) -> str:
    """Return `text` with its URLs redacted, and without queries, headers and parameters that may contain keys.

    >>> redacted_text("GET /file?sig=secret: see HTTPS://token@host/x?secret, or http%3A%2F%2Fhost%2Fx%3Fsecret")
    'GET /file?...: see https://host/x?..., or http://host/x?...'
    >>> redacted_text("Authorization: Basic secret"), redacted_text("bad X-Amz-Signature=secret&x=1, is it?")
    ('Authorization: ...', 'bad X-Amz-Signature=...&x=1, is it?')
    """
    if "://" in text or "%" in text:
        text = re.sub(_URL, lambda found: _at_end(found[0], _shown), text)
    if "@" in text:
        text = re.sub(_LOGIN, "//", text)
    if "?" in text:
        hidden = f"?{HIDDEN}"
        text = re.sub(_QUERY, lambda found: _at_end(found[0], lambda query: hidden if "=" in query else query), text)
    if _HEADERS.search(text):
        text = re.sub(_HEADER, rf"\1\2 {HIDDEN}", text)
    if "=" in text:
        text = re.sub(_PAIR, rf"\1={HIDDEN}", text)
    return re.sub(_BEARER, rf"\1 {HIDDEN}", text) if "bearer" in text.lower() else text


def _at_end(found: str, change: Callable[[str], str]) -> str:
    """Return a match changed by `change`, except for punctuation at its end, which belongs to the sentence."""
    trimmed = found.rstrip(":,;)]}")
    return change(trimmed) + found[len(trimmed) :]


def _shown(url: str) -> str:
    if re.fullmatch(_EXAMPLE, url):
        return url
    while "://" not in url:  # percent-encoded, perhaps twice
        url = unquote(url)
    return redact(url)


def hide(text: str, *urls: str, secrets: Iterable[str] = ()) -> str:
    """Return the text of a server or program without the secrets of the URLs sent to it.

    Such text may repeat a URL, its query, or parts of them, plain or encoded.

    :param secrets: further secrets

    >>> hide("no such key: se/cret", "https://host/x?key=se%2Fcret"), hide("530 ann:hush is wrong", "ftp://ann:hush@h/x")
    ('no such key: ...', '530 ann:... is wrong')
    """
    known = {*secrets, *(each for url in urls for each in _secrets(url))}
    found = sorted((each for each in known if len(each) >= SHORTEST), key=len, reverse=True)
    if found:
        text = re.sub("|".join(map(_in_any_spelling, found)), HIDDEN, text)
    return redacted_text(text)


def _secrets(url: str) -> Iterator[str]:
    """Yield the possible secrets in a URL, each as written and percent-decoded."""
    rest, _, fragment = url.partition("#")
    query = rest.partition("?")[2]
    found = [pair.partition("=")[2] or pair for part in (query, fragment) for pair in re.split("[&;]", part)[:MOST]]
    login, at, _ = rest.partition("://")[2].partition("?")[0].partition("/")[0].rpartition("@")
    if at:
        user, _, password = login.partition(":")
        found.append(password)
        if re.match("(https?|davs?):", url, re.I):
            found += [user, b64encode(unquote(login).encode(errors="surrogateescape")).decode()]
    for each in found:
        yield from (each, unquote(each), unquote_plus(each))


def _in_any_spelling(secret: str) -> str:
    """Return a pattern for a secret that matches each character plain, percent-encoded, or escaped as in HTML."""
    most = "".join(map(_character, secret[:LONGEST]))
    return most if len(secret) <= LONGEST else most + _REST


def _character(char: str) -> str:
    from html import escape  # imported here because few messages have secrets

    encoded = "".join(f"%{byte:02x}" for byte in char.encode(errors="surrogateescape"))
    spellings = [re.escape(char), f"(?i:{encoded})", re.escape(escape(char)), *(["[+]"] if char == " " else [])]
    return f"(?:{'|'.join(dict.fromkeys(spellings))})"


def unsafe_reason(url: str) -> str | None:
    """Return why a URL is unsafe to pass to another program, such as an odd user name or host; None if it is safe.

    >>> unsafe_reason("sshftp://ann@host.example:22/x"), unsafe_reason("ftp://[2001:db8::1]/x")
    (None, None)
    >>> unsafe_reason("sshftp://-oProxyCommand=id@host/x")
    "the user name '-oProxyCommand=id' is not made of letters, digits and ._@+- alone"
    >>> unsafe_reason("sshftp://%2DoX@host/x"), unsafe_reason("sshftp://-oX/x")
    ("the user name '-oX' is not made of letters, digits and ._@+- alone", \
"the host '-ox' is not made of letters, digits and ._@+- alone")
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises
    except ValueError:
        return "its host or port is impossible"
    authority = url.partition("://")[2].partition("/")[0]
    if parts.scheme not in WEB and re.search(r"[?#\\]", authority):
        return "its host is followed by no path"  # programs disagree on where it ends
    if "@-" in unquote(authority):
        return "a '-' follows an '@'"  # programs that end the user name at the first @ would treat it as a host
    login, at, place = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    host = parts.hostname or ""
    bracketed = place.startswith("[")
    for what, value, kind in (
        ("user name", unquote(user), PLAIN if at else None),
        ("host", host if bracketed else unquote(host), NUMERIC if bracketed else PLAIN),
    ):
        if kind and not kind.fullmatch(value):
            return f"the {what} {value!r} is not made of letters, digits and ._@+- alone"
    return "the password has a control character" if re.search(r"[\x00-\x20\x7f\"]", unquote(password)) else None


LONGEST_LINE = 4096
"""Maximum characters of a line."""

_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Invisible characters that Unicode classifies as letters or marks."""


def escaped(text: str, allowed: str = "") -> str:
    """Return `text` with all invisible characters escaped as in Python, except those in `allowed`.

    This escapes control characters, line ends, all blanks but the space, marks that change the writing direction,
    characters without width, and unassigned code points.

    >>> print(escaped("550 no\\r\\n\\x1b[2Jsuch\\u202efile\\udcff"))
    550 no\\r\\n\\x1b[2Jsuch\\u202efile\\udcff
    """
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(char if char in allowed or _seen(char) else char.encode("unicode_escape").decode() for char in text)


def _seen(char: str) -> bool:
    return char.isprintable() and not _INVISIBLE.match(char)


def one_line(text: str, longest: int = LONGEST_LINE) -> str:
    """Return `text` as one line of at most `longest` characters: escaped, and with its URLs redacted.

    >>> one_line("x" * 9, 6), one_line("a\\tb")
    ('xxx...', 'a\\\\tb')
    """
    shown = escaped(redacted_text(text[: 2 * longest])[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def lines(text: str) -> str:
    """Return `text` escaped, except for line feeds and tabs. Its URLs are not redacted."""
    return escaped(text, allowed="\n\t")
