"""Drawings: images with text beside them, safe and equal on every page."""

import re
from xml.etree.ElementTree import Element

import pytest
from defusedxml.ElementTree import fromstring

from broker.reports import charts
from broker.reports.charts.palette import LIGHT
from broker.reports.document import Figure
from broker.reports.drawing import png, svg
from tests.broker.reports.figures import HOSTILE, figures, rates

FIGURES = {figure.name: figure for figure in figures()}
SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {"svg", "title", "g", "path", "line", "rect", "text", "defs", "clipPath"}
WIDEST = 740
"""Widest drawing with its labels: a page is not much wider, and a phone shows it at half the size."""


def elements(drawing: str) -> list[Element]:
    return list(fromstring(drawing).iter())


@pytest.mark.parametrize("standalone", [False, True])
@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES.keys())
def test_names_are_text_and_nothing_else(figure: Figure, standalone: bool):
    for element in elements(svg(figure, standalone)):
        assert element.tag.removeprefix(SVG) in ELEMENTS
        assert not {name for name in element.attrib if name.startswith("on") or name in ("style", "href")}
        assert not re.search(
            "[\x00-\x1f\u202a-\u202e\u2066-\u2069]", "".join([element.text or "", *element.attrib.values()])
        )


def test_hostile_names_are_shown_as_they_are():
    words = {element.text for element in elements(svg(FIGURES["lines"]))}
    assert {HOSTILE[0], HOSTILE[1], HOSTILE[2], r"a\x00\x1b[31m\nb", r"\u202egnp.exe\u2066"} <= words


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES.keys())
def test_a_drawing_is_an_image_with_a_text_alternative(figure: Figure):
    root = fromstring(svg(figure))
    assert (root.get("role"), root.get("aria-label")) == ("img", figure.alternative)
    assert not [each for each in root.iter() if each is not root and each.get("role")]
    assert root.findtext(f"{SVG}title") == figure.title
    assert float(root.get("width", "")) <= WIDEST


def test_a_drawing_follows_its_page_or_stands_alone():
    in_page, alone = svg(FIGURES["grid"]), svg(FIGURES["grid"], standalone=True)
    assert "var(--ink)" in in_page
    assert LIGHT["ink"] not in in_page
    assert "var(--" not in alone
    assert LIGHT["ink"] in alone
    assert elements(alone)[2].attrib["fill"] == LIGHT["paper"]


def test_drawings_of_one_page_have_no_names_in_common():
    clipped = [
        {**FIGURES["points"].spec, "mark": {"type": "point", "clip": True}, "layer": None, "height": height}
        for height in (100, 200)
    ]
    for spec in clipped:
        del spec["layer"]
    drawings = [svg(Figure("f", "F", FIGURES["points"].table, spec, "f")) for spec in clipped]
    names = [set(re.findall(r'id="([^"]+)"', drawing)) for drawing in drawings]
    assert all(names)
    assert not names[0] & names[1]
    for own, drawing in zip(names, drawings, strict=True):
        assert set(re.findall(r"url\(#([^)]+)\)", drawing)) <= own


def test_the_same_figure_is_drawn_the_same():
    assert svg(next(figures())) == svg(next(figures()))


def test_a_picture_has_two_dots_for_one():
    picture = png(FIGURES["gantt"])
    assert picture.startswith(b"\x89PNG")
    width = int.from_bytes(picture[16:20], "big")
    assert width == 2 * float(fromstring(svg(FIGURES["gantt"])).get("width", ""))


def test_a_figure_with_too_few_points_has_no_drawing():
    with pytest.raises(ValueError, match="fewer than 3 points"):
        svg(charts.series("s", "Rate", rates(2), "at", "rate"))


def test_drawing_fetches_no_urls():
    figure = FIGURES["points"]
    fetching = Figure("f", "F", figure.table, {**figure.spec, "data": {"url": "http://127.0.0.1:9/x.csv"}}, "f")
    with pytest.raises(ValueError, match="not allowed"):
        svg(fetching)
