"""Pictures of reports in the docs: one for each report, small enough for the repository."""

import pytest
from PIL import Image

from broker.reports.registry import REPORTS
from scripts.docs import PAGE, PICTURES

LARGEST = 150_000


@pytest.mark.parametrize("name", REPORTS)
def test_each_report_has_its_picture(name):
    shown = PAGE.read_text()
    assert f"\n## {REPORTS[name].title}\n" in shown, "run: make docs"
    assert f"![{REPORTS[name].title}](reports/{name}.png)" in shown, "run: make docs"
    assert (PICTURES / f"{name}.png").exists(), "run: make docs"


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.png")), ids=lambda path: path.stem)
def test_pictures_are_of_reports_that_there_are_and_small(picture):
    assert picture.stem.removesuffix("-dark").removesuffix("-phone") in REPORTS
    assert picture.stat().st_size <= LARGEST
    with Image.open(picture) as image:
        assert image.format == "PNG"
        assert image.width in (390, 1100)
