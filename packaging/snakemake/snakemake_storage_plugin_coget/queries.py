"""The names of input files in a workflow: a dataset, or the URLs of replicas. Needs neither Snakemake nor coget."""

import hashlib
import re

__all__ = ["canonical", "file_name", "has_wildcards", "is_valid", "joined", "sources"]

SCHEME = "coget://"
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/].*")
DATASET = re.compile(r"[\w.{},-]+:[^/|\s][^|\s]*")
WILDCARD = re.compile(r"\{[^{}]*\}")


def sources(query: str) -> list[str]:
    """Return the dataset, or the URLs, that a query names."""
    return query.removeprefix(SCHEME).split("|")


def joined(named: list[str]) -> str:
    """Return the query for a dataset or URLs, in this order."""
    return SCHEME + "|".join(named)


def canonical(query: str) -> str:
    """Return the query with its replicas in order, each once, so that the same file has the same name."""
    return joined(sorted(set(sources(query))))


def is_valid(query: str) -> bool:
    """Return whether a query is a dataset `coget://SCOPE:NAME`, or URLs, with or without `coget://`."""
    named = sources(query)
    dataset = query.startswith(SCHEME) and len(named) == 1 and DATASET.fullmatch(named[0])
    return bool(dataset) or all(URL.fullmatch(each) for each in named)


def has_wildcards(query: str) -> bool:
    """Return whether a query stands for several files."""
    return bool(WILDCARD.search(query))


def file_name(query: str) -> str:
    """Return a relative path with the file's own name at its end, without keys; it keeps the wildcards of a query."""
    wildcards = "".join(WILDCARD.findall(query))
    address = sources(query)[0].partition("?")[0].partition("#")[0].rstrip("/")
    name = re.sub(r"[^\w.{},=+-]", "_", re.split("[/:]", address)[-1])[-200:]
    name = f"_{name}" if name in ("", ".", "..") else name
    return f"{hashlib.sha256(query.encode()).hexdigest()[:16]}{wildcards}/{name}"
