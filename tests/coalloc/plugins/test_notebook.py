"""Progress in notebooks: a real kernel executes a notebook; its pictures are pure functions of snapshots."""

import json
import os
import sys
from contextlib import ExitStack
from html.parser import HTMLParser

import pytest

from coalloc.model.progress import Snapshot, SourceView
from coalloc.plugins.notebook import NotebookProgress, _picture
from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE

FOREIGN = "<script>alert('1')</script>\" onload='x'\u202e\n"


def snapshot(**changes) -> Snapshot:
    sources = (
        SourceView("ftp://a.example/x", "fetching", 2e6, 600, 0.75),
        SourceView(f"http://b.example/{FOREIGN}", "dropped", 0, 200, 0.25, f"it says {FOREIGN}"),
    )
    return Snapshot(FOREIGN, "fetching", 2.0, 800, 0, 1000, 3e6, 4.0, sources)._replace(**changes)


class Tags(HTMLParser):
    """The elements, their attributes and the text of a picture."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_a_picture_shows_all_sources_and_runs_nothing_that_is_foreign():
    picture = Tags(_picture(snapshot()))
    assert {tag for tag, _ in picture.found} == {"div", "b", "span", "br", "progress", "table", "tbody", "tr", "td"}
    assert {name for _, attributes in picture.found for name in attributes} <= {
        "style",
        "max",
        "value",
        "aria-label",
        "colspan",
    }
    assert [attributes["value"] for tag, attributes in picture.found if tag == "progress"] == [
        "0.8000",
        "0.7500",
        "0.2500",
    ]
    for text in ("a.example", "b.example", "fetching", "dropped", "80 %", "alert('1')", "2.00 MB/s"):
        assert text in picture.text
    assert "\u202e" not in picture.text


@pytest.mark.parametrize(
    ("phase", "size", "value"), [("connecting", None, None), ("done", 0, "1"), ("done", 1000, "0.8000")]
)
def test_a_bar_without_a_size_moves_until_the_end(phase, size, value):
    bar = next(
        found for tag, found in Tags(_picture(snapshot(phase=phase, size=size, sources=()))).found if tag == "progress"
    )
    assert bar.get("value") == value


def test_without_a_front_end_it_prints_lines(capsys):
    progress = NotebookProgress()
    progress(snapshot(name="x", sources=()))
    progress(snapshot(name="x", phase="done", sources=()))
    assert [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()] == ["x: 80 %", "x: done"]


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # warnings of the notebook's libraries are theirs
def test_a_notebook_shows_each_file_once_and_its_sources(tmp_path):
    for name in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(name, reason=f"pip install 'coget[hosts]' brings {name}")
    import nbformat
    from nbclient import NotebookClient

    with ExitStack() as stack:
        web = [stack.enter_context(Nginx(tmp_path / f"web{i}", tmp_path / f"run{i}")) for i in range(2)]
        content = random_file(web[0].root / "x", 3_000_000)
        (web[1].root / "x").write_bytes(content)
        code = (
            "from coalloc import api\nfrom coalloc.plugins.notebook import NotebookProgress\n"
            f"(report,) = await api.download(api.Request({[each.url('x') for each in web]}), NotebookProgress())"
        )
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in (code, "report.size")])
        kernels = tmp_path / "data/kernels/here"
        kernels.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (kernels / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "here", "language": "python"}))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
            patch.setenv("HOME", str(tmp_path))
            patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
            NotebookClient(
                book, kernel_name="here", timeout=PATIENCE, resources={"metadata": {"path": str(tmp_path)}}
            ).execute()
    assert (tmp_path / "x").read_bytes() == content
    first, second = (cell.outputs for cell in book.cells)
    assert [output.output_type for output in first] == ["display_data"]  # updated in place
    picture = Tags(first[0].data["text/html"])
    assert "done" in picture.text
    for each in web:
        assert f"127.0.0.1:{each.port}" in picture.text
    assert second[0].data["text/plain"] == "3000000"
