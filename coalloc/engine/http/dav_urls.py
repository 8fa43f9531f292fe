"""The schemes of WebDAV: `dav` is http and `davs` is https. They tell that the server answers PROPFIND. Pure."""

__all__ = ["is_webdav", "web_url"]

SCHEMES = {"dav": "http", "davs": "https"}


def is_webdav(url: str) -> bool:
    """Return whether the scheme of a URL is dav or davs."""
    return url.partition("://")[0].lower() in SCHEMES


def web_url(url: str) -> str:
    """Return a URL with http for dav, and https for davs.

    >>> web_url("davs://host/x"), web_url("http://host/x")
    ('https://host/x', 'http://host/x')
    """
    scheme, mark, rest = url.partition("://")
    return SCHEMES.get(scheme.lower(), scheme) + mark + rest
