"""Rules of the project: import contracts, docs that agree with the code, and plain words."""

import ast
import configparser
import doctest
import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from coalloc import errors
from coalloc.cli.main import COMMANDS, coget

HOUSE = Path(__file__).parents[1]
PAPERS = [*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md")]

PACKAGES = ("predictors", "coalloc", "broker")
RIDDLES = re.compile(
    r"(What|Who|Whom|Whose|Whether|Of|How|That|Where|When|Which|Why|In|To|As|By|For|From|With|Without|On|At|It|There|"
    r"Those|These|Once|If|Not|May|Is|Are|Has|Have|Will|Be|So|Nobody|Somebody|Whoever|Whatever|Wherever|Until|While|"
    r"Only|Also|And|But|Because|Since|After|Before|Under|Over|Such)\b"
)
"""First words of a docstring that begins with neither a verb nor a noun."""
WIDEST = 100
"""Longest line of prose in the docs, in characters."""
MADE = {"docs/reference/results.md", "docs/reference/reports.md"}
"""Pages that a command generates."""


def text(path: str) -> str:
    return (HOUSE / path).read_text()


def test_imports_keep_to_the_contracts():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]  # in this process it disabled all logs
    checked = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def anchors(paper: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", paper.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: str(paper.relative_to(HOUSE)))
def test_links_lead_somewhere(paper: Path):
    for link in re.findall(r"\]\(([^)]+)\)", paper.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (paper.parent / path).resolve() if path else paper
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_paper_can_be_found_from_the_readme():
    found, new = set(), {HOUSE / "README.md"}
    while new:
        paper = new.pop()
        found.add(paper)
        links = re.findall(r"\]\(([^)#:]+\.md)", paper.read_text())
        new |= {(paper.parent / link).resolve() for link in links} - found
    assert set(PAPERS) <= found


def dependencies() -> set[str]:
    config = configparser.ConfigParser()
    config.read(HOUSE / "setup.cfg")
    wanted = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    names = {re.split(r"[ <>=\[]", line)[0] for lines in wanted for line in lines.split("\n") if line}
    return names - {"coget"}


def test_every_dependency_has_its_reason():
    explained = set(re.findall(r"^\| ([a-z][\w-]+) \|", text("docs/dependencies.md"), re.MULTILINE)) - {"package"}
    assert explained == dependencies()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_reference_has_every_option(name: str):
    reference = text("docs/reference/cli.md")
    options = {
        word
        for param in coget.get_command(click.Context(coget), name).params
        if isinstance(param, click.Option)
        for word in param.opts
    }
    assert {option for option in options if f"`{option}" not in reference} == set()
    assert f"## {name}\n" in reference


def error_classes(root: type[errors.CoallocError]) -> set[type[errors.CoallocError]]:
    return {root}.union(*(error_classes(kind) for kind in root.__subclasses__()))


def test_the_reference_has_every_error():
    reference = text("docs/reference/errors.md")
    ours = error_classes(errors.CoallocError) - {errors.CoallocError}
    missing = {kind.code for kind in ours if f"`{kind.code}`" not in reference}
    assert missing == set()
    ends = {kind for kind in ours if not issubclass(kind, errors.SourceError)}
    assert {kind.code for kind in ends if f"| {kind.status} | `{kind.code}` |" not in reference} == set()


@pytest.mark.parametrize("package", ["coalloc", "broker"])
def test_the_picture_of_the_code_has_every_room(package: str):
    picture = text("docs/explanation/architecture.md").split("```")[1]
    (part,) = re.findall(rf"^{package}/.*\n((?:  .*\n)+)", picture, re.MULTILINE)
    drawn = set(re.findall(r"(?:^  |  )([\w]+(?:/|\.py))(?=$| )", part, re.MULTILINE))
    rooms = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in (HOUSE / package).iterdir()
        if path.suffix == ".py" or any(path.rglob("*.py"))
    }
    assert drawn == rooms - {"__init__.py"}


def test_the_table_of_places_to_change_names_files_that_are_there():
    table = text("docs/explanation/architecture.md").split("## Where to change something")[1].split("\n## ")[0]
    named = re.findall(r"`((?:broker|coalloc|predictors)/[\w/.]*)`", table)
    assert len(named) >= 20
    for line in table.splitlines():  # a file without a directory is beside the one that its line names first
        files = re.findall(r"`([\w/]+\.py)`", line)
        named += [str(Path(files[0]).parent / file) for file in files if "/" not in file]
    assert [path for path in named if not (HOUSE / path).exists()] == []


def test_the_page_on_trust_names_tests_that_are_there():
    """Names have the form `file::test` below tests/, or `::test` for the last named file."""
    page, file, missing = text("docs/explanation/trust.md"), "", []
    for cited in re.findall(r"`([\w/]+\.py)?(?:::(test_\w+))?`", page):
        file = cited[0] or file
        path = HOUSE / "tests" / file
        if any(cited) and not (path.is_file() and f"def {cited[1]}" in path.read_text()):
            missing.append(f"{file}::{cited[1]}")
    assert not missing


def test_all_tests_on_a_wan_are_where_make_test_looks_for_them():
    folders = re.search(r"^ON_A_WAN := (.+)", text("Makefile"), re.MULTILINE)
    assert folders is not None
    marked = [path for path in HOUSE.glob("tests/**/test_*.py") if re.search(r"pytest\.mark\.wan\b", path.read_text())]
    assert marked, "none is marked"
    assert [path for path in marked if not any(path.is_relative_to(HOUSE / each) for each in folders[1].split())] == []


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_docstrings_begin_with_a_verb_or_a_noun(package: str):
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    riddles = [
        f"{path.relative_to(HOUSE)}:{getattr(node, 'lineno', 1)}: {found.splitlines()[0]}"
        for path in HOUSE.glob(f"{package}/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, documented) and (found := ast.get_docstring(node)) and RIDDLES.match(found)
    ]
    assert riddles == []


@pytest.mark.parametrize("package", PACKAGES)
def test_examples_in_docstrings_hold(package: str):
    wrong = []
    for path in HOUSE.glob(f"{package}/**/*.py"):
        if ">>> " in path.read_text():
            module = ".".join(path.relative_to(HOUSE).with_suffix("").parts).removesuffix(".__init__")
            if doctest.testmod(importlib.import_module(module)).failed:
                wrong.append(module)
    assert wrong == []


def test_class_names_are_unique():
    places: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in HOUSE.glob(f"{package}/**/*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(str(path.relative_to(HOUSE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_module_gives_a_name_two_values():
    """Two modules were joined once, and one's constants took the place of the other's."""
    wrong = []
    for package in PACKAGES:
        for path in HOUSE.glob(f"{package}/**/*.py"):
            targets = [
                node.targets if isinstance(node, ast.Assign) else [node.target]
                for node in ast.parse(path.read_text()).body
                if isinstance(node, ast.Assign | ast.AnnAssign)
            ]
            found = Counter(
                name.id
                for each in targets
                for target in each
                for name in (target.elts if isinstance(target, ast.Tuple) else [target])
                if isinstance(name, ast.Name)
            )
            wrong += [f"{path.relative_to(HOUSE)}: {name}" for name, count in found.items() if count > 1]
    assert wrong == []


def prose(paper: Path) -> list[tuple[int, str]]:
    """Return the lines of a page outside of tables, code and generated parts."""
    fenced = made = False
    found = []
    for number, line in enumerate(paper.read_text().splitlines(), 1):
        fenced ^= line.startswith("```")
        if line.startswith("<!--"):
            made = line != "<!-- end -->"
        if not fenced and not made and not line.startswith(("|", "    ", "```", "<!--")):
            found.append((number, line))
    return found


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: str(paper.relative_to(HOUSE)))
def test_lines_of_the_docs_fit_on_a_screen(paper: Path):
    if str(paper.relative_to(HOUSE)) not in MADE:
        assert [number for number, line in prose(paper) if len(line) > WIDEST] == []
