"""Drawings of figures: SVG with the colours of its page or standalone, PNG, and PDF.

Vega's engine takes 0.4 s to start and 30 ms for a figure, and never frees its memory; so a broker draws in a
subprocess. Drawings are cached. Names appear only as text in a drawing, and a drawing loads nothing.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from xml.etree.ElementTree import Element, register_namespace, tostring

from defusedxml.ElementTree import fromstring

from broker.reports.charts.palette import LIGHT
from broker.reports.document import Figure
from broker.subprocesses import JobKind

__all__ = ["DRAWING", "drawn", "png", "svg", "vectors"]

DRAWING = JobKind("drawing", "request a shorter period, or tables")
SVG = "http://www.w3.org/2000/svg"
CACHED = 64
"""Number of drawings in the cache, each of at most 0.5 MB, and usually a tenth of that."""
VARIABLE = re.compile(r"var\(--(\w+)\)")
REFERENCE = re.compile(r"url\(#(\w+)\)")
SPOKEN = {"role", "aria-label", "aria-roledescription"}
"""Attributes with which screen readers would read every mark; the text alternative of the whole image replaces them."""
PAINTED = ("fill", "stroke")
"""Attributes whose values are colours."""
register_namespace("", SVG)


def svg(figure: Figure, standalone: bool = False) -> str:
    """Return the figure as an `svg` element with a text alternative; a page may contain several of them.

    :param standalone: whether it is for a file of its own, with light colours on a white background
    :raises ValueError: when there is nothing to draw
    """
    if not figure.spec:
        raise ValueError(f"{figure.name} is not drawn: {figure.note}")
    return _drawing(json.dumps(figure.spec), figure.title, figure.alternative, standalone)


def drawn(figures: Iterable[Figure]) -> Mapping[str, str]:
    """Return the SVG of figures by name; figures with too few data are left out."""
    return {each.name: svg(each) for each in figures if each.spec}


def png(figure: Figure) -> bytes:
    """Return the figure as PNG in light colours, with two pixels for each unit of the drawing.

    :raises ValueError: when there is nothing to draw
    """
    import vl_convert

    picture: bytes = vl_convert.svg_to_png(svg(figure, standalone=True), scale=2)
    return picture


def vectors(figure: Figure) -> bytes:
    """Return the figure as a PDF file in light colours, with embedded glyphs.

    :raises ValueError: when there is nothing to draw
    """
    import vl_convert

    drawing: bytes = vl_convert.svg_to_pdf(svg(figure, standalone=True))
    return drawing


def _vega(spec: str) -> str:
    import vl_convert  # 84 MB of memory, which most commands of the broker do not need

    drawing: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return drawing


@lru_cache(CACHED)
def _drawing(spec: str, title: str, alternative: str, standalone: bool) -> str:
    root = fromstring(_vega(spec))
    mark = hashlib.sha256(spec.encode()).hexdigest()[:10]
    for element in root.iter():
        _make_ids_unique(element.attrib, mark)
        for name in SPOKEN.intersection(element.keys()):
            del element.attrib[name]
        if standalone:
            _painted(element.attrib)
    if standalone:
        paper = {"width": root.get("width", ""), "height": root.get("height", ""), "fill": LIGHT["paper"]}
        root.insert(0, Element(f"{{{SVG}}}rect", paper))
    for name in ("version", "class"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", alternative)
    root.insert(0, Element(f"{{{SVG}}}title"))
    root[0].text = title
    return tostring(root, encoding="unicode")


def _make_ids_unique(attributes: dict[str, str], mark: str) -> None:
    """Append a mark to an element's id and references, so that ids are unique in a page with several drawings."""
    if "id" in attributes:
        attributes["id"] = f"{attributes['id']}-{mark}"
    for name, value in attributes.items():
        if "url(#" in value:
            attributes[name] = REFERENCE.sub(rf"url(#\1-{mark})", value)


def _painted(attributes: dict[str, str]) -> None:
    for name in PAINTED:
        if name in attributes:
            attributes[name] = VARIABLE.sub(lambda found: LIGHT[found[1]], attributes[name])
