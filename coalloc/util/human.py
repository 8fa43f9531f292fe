"""Formats of numbers, hosts and messages for users, used in all output of coget.

Units are decimal: a GB is 10^9 bytes, as for disks and networks.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from math import ceil, inf
from urllib.parse import urlsplit

from coalloc.safe_text import one_line, redact

__all__ = [
    "about",
    "counted",
    "duration",
    "host",
    "labels",
    "moment",
    "one_line",
    "percent",
    "probability",
    "rate",
    "remaining",
    "size",
]

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def size(count: float) -> str:
    """Return a number of bytes with its unit, with three significant digits.

    >>> size(1), size(812), size(4_210_000_000), size(999_999)
    ('1 byte', '812 bytes', '4.21 GB', '1.00 MB')
    """
    if count < 999.5:
        return "1 byte" if round(count) == 1 else f"{count:.0f} bytes"
    return _scaled(count)


def rate(per_second: float) -> str:
    """Return a rate, given in bytes per second, with its unit.

    >>> rate(118_400_000), rate(3_200), rate(0)
    ('118 MB/s', '3.20 kB/s', '0 kB/s')
    """
    return f"{_scaled(per_second)}/s" if per_second > 0 else "0 kB/s"


def _scaled(count: float) -> str:
    scaled = count / 1000
    for unit in _UNITS:
        if scaled < 999.5 or unit == _UNITS[-1]:
            break
        scaled /= 1000
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{digits}f} {unit}"


def duration(seconds: float) -> str:
    """Return a duration, given in seconds, in its one or two largest units.

    >>> duration(0.0123), duration(9.96), duration(59.7), duration(185), duration(7_800)
    ('0.01 s', '10.0 s', '1 min 00 s', '3 min 05 s', '2 h 10 min')
    """
    if seconds < 0.995:
        return f"{seconds:.2f} s"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def remaining(seconds: float, bounds: tuple[float, float] | None = None) -> str:
    """Return the seconds that are left, with the range in which they probably lie, if it is known.

    >>> remaining(185), remaining(185, (150.0, 260.0)), remaining(float("inf"))
    ('3 min 05 s left', '3 min 05 s left (2 min 30 s to 4 min 20 s)', 'no end in sight')
    """
    if seconds == inf:
        return "no end in sight"
    likely = f" ({duration(bounds[0])} to {duration(bounds[1])})" if bounds else ""
    return f"{duration(seconds)} left{likely}"


def moment(at: float) -> str:
    """Return a time, in seconds since the epoch, in this machine's time zone, up to the next second."""
    local = datetime.fromtimestamp(ceil(at))
    clock = local.strftime("%H:%M:%S" if local.second else "%H:%M")
    return clock if local.date() == datetime.now().date() else f"{local:%Y-%m-%d}T{clock}"


def counted(count: int, thing: str) -> str:
    """Return a count with its noun in the singular or plural.

    >>> counted(1, "file"), counted(20_000, "file")
    ('1 file', '20,000 files')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def percent(part: float, whole: float) -> str:
    """Return `part` in percent of `whole`, rounded down so that only all is 100 %.

    >>> percent(999, 1000), percent(1, 1), percent(0, 0)
    ('99 %', '100 %', '100 %')
    """
    return f"{int(100 * part / whole) if whole else 100} %"


def probability(chance: float) -> str:
    """Return a probability in percent; nothing is certain or impossible.

    >>> probability(0.614), probability(0.9999), probability(0.0)
    ('61 %', 'over 99 %', 'under 1 %')
    """
    if chance >= 0.995:
        return "over 99 %"
    return "under 1 %" if chance < 0.01 else percent(chance, 1)


def labels(urls: Sequence[str]) -> tuple[str, ...]:
    """Return a short name for each URL: its host, or the whole URL if several URLs have the same host.

    >>> labels(["ftp://me:secret@a.example:2811/x", "http://b.example/x"])
    ('a.example:2811', 'b.example')
    """
    hosts = [_host(url) for url in urls]
    times = Counter(hosts)
    return tuple(
        host if host and times[host] == 1 else one_line(redact(url)) for host, url in zip(hosts, urls, strict=True)
    )


def host(label: str) -> str:
    """Return the host and port of a label that may begin with a scheme.

    >>> host("gsiftp://a.example:2812"), host("here")
    ('a.example:2812', 'here')
    """
    return one_line(label.rpartition("://")[2])


def about(label: str, url: str, text: str) -> str:
    """Return `text`, a message about the source at `url`, such that it names the source once, by its label.

    >>> about("a.example", "ftp://a.example/x", "it is gone"), about("a", "ftp://a/x", "ftp://a/x: no such file")
    ('a.example: it is gone', 'a: no such file')
    """
    message = one_line(text).replace(one_line(redact(url)), label)
    return message if label in message else f"{label}: {message}"


def _host(url: str) -> str:
    return one_line(urlsplit(url).netloc.rpartition("@")[2])
