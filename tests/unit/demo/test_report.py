"""The report: well-formed pictures with the figures in them, and nothing from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from demo import pictures
from demo.report import report_html
from demo.results import Results
from tests.unit.demo.results import KIB, canned_results

PICTURES = (pictures.files_over_batches, pictures.file_sizes, pictures.query_times, pictures.extents)


@pytest.mark.parametrize("draw", PICTURES)
def test_a_picture_is_well_formed_and_all_of_it_is_inside(draw: Callable[[Results], str]) -> None:
    svg = ElementTree.fromstring(draw(canned_results()))
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for element in svg.iter():
        for name, most in (("x", width), ("y", height), ("x1", width), ("y2", height)):
            assert 0 <= float(element.attrib.get(name, 0)) <= most
        if element.tag == "rect":
            assert float(element.attrib["x"]) + float(element.attrib["width"]) <= width
            assert float(element.attrib["y"]) + float(element.attrib["height"]) <= height


def test_the_line_of_a_sink_ends_at_its_files() -> None:
    svg = ElementTree.fromstring(pictures.files_over_batches(canned_results()))
    heights = [
        [float(point.split(",")[1]) for point in line.attrib["points"].split()]
        for line in svg.iter("polyline")
    ]
    (theirs_0, theirs_20, theirs_40), (ours_0, ours_20, ours_4) = heights
    assert (theirs_0, theirs_20) == (ours_0, ours_20)
    assert (ours_0 - ours_4) / (theirs_0 - theirs_40) == pytest.approx(0.1, abs=0.01)


def test_a_histogram_counts_every_file_once_and_shares_all_bytes() -> None:
    bins = pictures.histogram([1, 4 * KIB - 1, 4 * KIB, 100 * KIB, 512 * KIB, 5_000 * KIB])
    assert [(name, files) for name, files, _ in bins if files] == [
        ("< 4", 2),
        ("4", 1),
        ("64", 1),
        ("512", 2),
    ]
    assert sum(share for _, _, share in bins) == pytest.approx(1)


def test_files_that_the_search_skips_are_drawn_faint() -> None:
    svg = ElementTree.fromstring(pictures.extents(canned_results()))
    faint, strong = (
        sum(
            path.attrib["d"].count("M")
            for path in svg.iter("path")
            if ("faint" in path.attrib["class"]) == hit
        )
        for hit in (True, False)
    )
    assert (faint, strong) == (30 + 3 + 1, 10 + 1 + 1)


def test_the_page_has_every_picture_and_refers_to_nothing_outside() -> None:
    page = report_html(canned_results())
    assert re.findall(r'<svg id="(\w+)"', page) == ["files", "sizes", "queries", "extents"]
    assert not re.search(r"https?:|<script|@import|url\(|src=", page)


def test_names_are_escaped() -> None:
    page = report_html(canned_results())
    assert "their <sink>" not in page
    assert "their &lt;sink&gt;: 40 files" in page
