"""Scenarios as YAML written by users; errors have line numbers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from coalloc.errors import UsageError
from coalloc.planner.documents.parts import Misread
from coalloc.planner.documents.scenario import Scenario, document, scenario

if TYPE_CHECKING:
    import yaml

__all__ = ["parsed", "read", "write"]

MISSING = "PyYAML is not installed"
REMEDY = "pip install 'coget[planner]'"
MERGE = "tag:yaml.org,2002:merge"
Lines = dict[tuple[str | int, ...], int]
Document = TypeVar("Document")


def read(text: str, where: str = "the network") -> Scenario:
    """Parse a scenario from YAML.

    :param where: name of the document in messages, such as a file name
    :raises UsageError: when the text is not YAML, or not a valid scenario
    """
    return parsed(text, where, scenario, "docs/reference/network.md")


def parsed(text: str, where: str, build: Callable[[object], Document], page: str) -> Document:
    """Parse YAML, and return what `build` makes of its plain values.

    :param where: name of the document in messages, such as a file name
    :param page: page of the docs with its format
    :raises UsageError: when the text is not YAML, or `build` refuses a part of it
    """
    lines: Lines = {(): 1}
    try:
        return build(_plain(text, lines, page))
    except Misread as error:
        raise UsageError(f"{where}, line {_line(lines, error)}: {error.message}", error.remedy) from None
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", error.remedy) from None
    except ImportError:
        raise UsageError(f"cannot read {where}: {MISSING}", REMEDY) from None


def _plain(text: str, lines: Lines, page: str) -> object:
    """Return the document as plain values, and store the line of each part in `lines`."""
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _walk(root, (), lines, set())
        return loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = f"line {mark.line + 1}: " if mark else ""
        raise UsageError(f"{at}it is not YAML: {error.problem}", "fix this line, or the one before") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # control characters, impossible dates
        raise UsageError(f"it is not YAML: {error}", f"correct it; {page} has the format") from None


def _walk(node: "yaml.Node", path: tuple[str | int, ...], lines: Lines, seen: set[int]) -> None:
    """Store the line of each part, and refuse repeated keys, of which YAML would silently use the last."""
    import yaml

    lines.setdefault(path, node.start_mark.line + 1)
    if id(node) in seen:  # an anchored node, which may contain itself
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for i, each in enumerate(node.value):
            _walk(each, (*path, i), lines, seen)
    elif isinstance(node, yaml.MappingNode):
        keys = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode):
                lines[*path, key.value] = line
                if key.tag == MERGE and isinstance(value, yaml.SequenceNode):
                    # Nested merges would let a few lines expand to more than fits into memory.
                    raise Misread(
                        (*path, key.value), "several mappings are merged", "merge only one, or write out all keys"
                    )
                if key.value in keys and key.tag != MERGE:
                    raise Misread((*path, key.value), "it occurs a second time", "leave out one of them")
                keys.add(key.value)
                _walk(value, (*path, key.value), lines, seen)


def _line(lines: Lines, error: Misread) -> int:
    path = error.path
    while path not in lines:
        path = path[:-1]
    return lines[path]


def write(scenario: Scenario) -> str:
    """Return a YAML document, which `read` parses to an equal scenario.

    :raises UsageError: when a name contains an arrow, a bracket or outer spaces, or PyYAML is not installed
    """
    try:
        import yaml
    except ImportError:
        raise UsageError(f"cannot write a network: {MISSING}", REMEDY) from None
    fields = document(scenario)
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
