"""Reports as files: complete, readable in light and dark mode, and safe against hostile names."""

import io
import re
from pathlib import Path

import pypdf
import pytest

from broker.reports.document import Column, Fact, Report, Table
from broker.reports.files import page, sheets
from tests.broker.reports.figures import HOSTILE, figures, pairs, rates
from tests.support.chromium import chromium, visit

AT = 1_790_000_000.0
MARKUP = '#let x = 1; *bold* $a$ <b>b</b> "q" \\ @x'


def report(name: str = "first") -> Report:
    """A report that has every kind of part."""
    some = rates(300)
    stale = [place % 7 == 0 for place in range(300)]
    linked = [Column("site", "Site", link="address"), Column("address", "Address"), Column("rate", "Rate", "rate")]
    tables = [
        Table("rates", "All rates", some.columns, some.rows, stale=stale),
        Table("sites", "Sites", linked, [("CERN", "pair?source=CERN", 52e6), (MARKUP, "", None)]),
        Table("nothing", "Nothing", linked, []),
        Table("few", "Few", linked, [], note="there are too few"),
    ]
    facts = [Fact("Transfers", 1234567, "count"), Fact("Rate", 52e6, "rate", MARKUP)]
    return Report(name, f"The {name}", MARKUP, AT, facts, list(figures()), tables)


def words(pdf: bytes) -> list[str]:
    return [sheet.extract_text() for sheet in pypdf.PdfReader(io.BytesIO(pdf)).pages]


@pytest.mark.long
async def test_a_page_opens_in_a_browser_and_asks_for_nothing(tmp_path: Path):
    file = tmp_path / "report.html"
    file.write_text(page([report(), report("second")], "Two reports", "From here to there."))
    async with chromium() as browser:
        for scheme in ("light", "dark"):
            async with visit(browser, f"file://{file}", color_scheme=scheme) as visitor:
                await visitor.open("")
                assert await visitor.faults() == []
                assert await visitor.page.get_by_role("heading", name="The second", exact=True).is_visible()
                assert await visitor.page.get_by_role("img").count() == 2 * len(list(figures()))
                shown = await visitor.page.get_by_role("region", name="Sites").first.inner_text()
                assert MARKUP in shown
                assert "pair?source" not in shown
                assert await visitor.page.evaluate("document.scripts.length") == 0
                wide = await visitor.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0


def test_a_page_notes_what_it_leaves_out():
    text = page([report()], "One report")
    assert "The first 200 of 300 rows." in text
    assert "there are too few" in text
    assert "There is nothing to show." in text
    assert "Rows in italics are too old to be reliable." in text


def test_a_pdf_has_the_text_the_figures_and_page_numbers():
    made = sheets([report(), report("second")], "Two reports", "From here to there.")
    found = words(made)
    assert "From here to there." in found[0]
    for wanted in ("The first", "The second", "1,234,567", "52 MB/s", "Sites", "There is nothing to show.", "too few"):
        assert any(wanted in sheet for sheet in found), wanted
    assert [sheet.strip().splitlines()[-1] for sheet in found] == [
        f"{n} of {len(found)}" for n in range(1, len(found) + 1)
    ]
    reader = pypdf.PdfReader(io.BytesIO(made))
    assert reader.metadata is not None
    assert reader.metadata.title == "Two reports"
    images = [image for sheet in reader.pages for image in sheet.images]
    assert images == []  # figures are vectors


def test_each_sheet_of_a_table_has_its_headings():
    some = rates(150)
    long = Report("long", "Long", "", AT, tables=[Table("rates", "Rates", some.columns, some.rows)])
    found = words(sheets([long], "Long"))
    assert len(found) > 2
    assert all(re.search(r"When\s+Rate\s+p10", sheet) for sheet in found)


def test_markup_in_names_is_text_on_paper_too():
    text = " ".join(" ".join(words(sheets([report()], HOSTILE[0]))).split())
    assert MARKUP in text
    assert HOSTILE[0] in text


@pytest.mark.parametrize("make", [page, sheets])
def test_the_same_reports_make_the_same_file(make):
    assert make([report()], "One") == make([report()], "One")


def test_a_wide_table_of_long_names_stays_on_its_sheet():
    table = pairs(("n" * 4000, *HOSTILE))
    (first, *_) = pypdf.PdfReader(io.BytesIO(sheets([Report("w", "W", "", AT, tables=[table])], "W"))).pages
    right = []
    first.extract_text(visitor_text=lambda text, cm, tm, fonts, size: right.append((tm[4], text)))
    assert max(x for x, text in right if text.strip()) < float(first.mediabox.width)
