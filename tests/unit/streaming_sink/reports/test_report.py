"""A report as JSON, as a line, and as entries of a snapshot's summary."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

from streaming_sink.reports.batch_report import BatchReport, reports_of
from streaming_sink.reports.cluster_report import ClusterReport
from streaming_sink.reports.maintenance_report import FillReport
from streaming_sink.reports.reporting import hand_over

REPORT = BatchReport(
    table="/lake/events",
    app_id="events",
    batch_id=7,
    outcome="committed",
    why="a fill was dropped: its input is gone",
    version=9,
    rows=1000,
    new_files=2,
    new_bytes=2048,
    filled_files=3,
    merged_files=1,
    merged_bytes=3 * 1024**2,
    dropped_fills=1,
    small_files=4,
    planned_by="forecast",
    route="one task",
    attempts=2,
    milliseconds={"head": 1, "write": 200, "total": 201},
)


def test_it_survives_json():
    read = json.loads(json.dumps(REPORT.to_dict()))
    assert (read.pop("kind"), read.pop("maintenance")) == ("batch", [])
    assert BatchReport(**read) == REPORT


def test_it_is_one_line():
    assert (
        REPORT.line() == "batch 7 of events committed as version 9: 1,000 rows in 2 files (2.0 KiB), "
        "filled 3 into 1 (3.0 MiB), by forecast and one task, "
        "2 attempts [ms head=1 write=200 total=201]: a fill was dropped: its input is gone"
    )


def test_a_warning_ends_the_line():
    told = replace(REPORT, warning="9 small files in p=1").line()
    assert told == f"{REPORT.line()}; warning: 9 small files in p=1"


def test_the_line_of_a_batch_that_filled_nothing_does_not_speak_of_it():
    plain = BatchReport(
        app_id="a",
        batch_id=0,
        outcome="committed",
        version=2,
        rows=1,
        new_files=1,
        new_bytes=1,
        planned_by="profile",
        route="shuffle",
        attempts=1,
    )
    assert (
        plain.line()
        == "batch 0 of a committed as version 2: 1 row in 1 file (1 B), by profile and shuffle [ms ]"
    )


def test_the_line_of_a_skipped_batch_says_why():
    skipped = BatchReport(app_id="a", batch_id=3, outcome="skipped", why="committed before", version=2)
    assert skipped.line() == "batch 3 of a skipped: committed before [ms ]"


def _head(*summaries):
    snapshots = [
        SimpleNamespace(summary=None if entries is None else SimpleNamespace(additional_properties=entries))
        for entries in summaries
    ]
    return SimpleNamespace(metadata=SimpleNamespace(location="/lake/events", snapshots=snapshots))


def test_a_summary_carries_the_figures_back():
    [read] = reports_of(
        _head({**REPORT.to_summary(), "streaming-sink.version": "9", "added-records": "1000"})
    )
    known = REPORT.to_dict() | {"attempts": 0, "small_files": 0, "dropped_fills": 0}
    assert read.to_dict() == known


def test_a_summary_is_text_to_text():
    assert all(isinstance(value, str) for value in REPORT.to_summary().values())


def test_snapshots_without_a_batch_or_with_entries_of_a_later_release_are_no_obstacle():
    later = {**REPORT.to_summary(), "streaming-sink.batch.invented-later": "x"}
    assert [read.batch_id for read in reports_of(_head(None, {"added-records": "1"}, later))] == [7]


def test_what_was_done_for_the_table_is_a_part_of_the_line_and_plain_values():
    """A pass of fills, a clustering, and what failed after the commit."""
    filled = FillReport(table="/lake/events", outcome="committed", version=10, input_files=9, output_files=1)
    clustered = ClusterReport(table="/lake/events", outcome="nothing", why="clustering: nothing to do")
    told = replace(REPORT, maintenance=(filled, clustered), problem="it does not answer")
    assert told.line() == REPORT.line().replace(
        " [ms",
        "; filled beside the stream: 9 files -> 1 (0 B), version 10; clustering: nothing to do;"
        " it does not answer [ms",
    )
    kinds = [(each["kind"], each["outcome"]) for each in told.to_dict()["maintenance"]]
    assert kinds == [("fill", "committed"), ("cluster", "nothing")]


def test_what_on_report_raises_is_logged_and_the_report_was_handed_over(caplog):
    got = []

    def refuse(report):
        got.append(report)
        raise ConnectionError("no metrics")

    hand_over(refuse, REPORT)
    hand_over(None, REPORT)
    assert got == [REPORT]
    assert caplog.messages == ["on_report failed, and the stream goes on: ConnectionError('no metrics')"]
