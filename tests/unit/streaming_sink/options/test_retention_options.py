"""A retention that cannot be fails when it is made, and says what to write instead."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from streaming_sink import IcebergSink, Retention
from streaming_sink.durations import duration
from timeline import properties
from timeline.properties import DEFAULTS


def test_its_defaults_are_those_of_a_table():
    for key, value in Retention().table_properties.items():
        assert DEFAULTS[key] == value


def test_it_is_frozen_and_given_by_name():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Retention().max_snapshots = 3
    with pytest.raises(TypeError):
        Retention("1 day")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"max_snapshots": 0}, ValueError, "max_snapshots must be at least 1, since the newest snapshot is"),
        ({"max_snapshots": "10"}, TypeError, "max_snapshots must be a whole number, not '10'"),
        (
            {"min_snapshots_to_keep": True},
            TypeError,
            "min_snapshots_to_keep must be a whole number, not True",
        ),
        (
            {"max_snapshots": 50},
            ValueError,
            "max_snapshots=50 is less than min_snapshots_to_keep=100, so no number of snapshots fits both",
        ),
        ({"max_snapshot_age": "a day"}, ValueError, "max_snapshot_age must be a number of .*, not 'a day'"),
        ({"max_snapshot_age": 5}, TypeError, 'max_snapshot_age must be a span of time such as "1 day"'),
        ({"deletion_grace": "-1 hours"}, ValueError, "deletion_grace must be a number of .*, not '-1 hours'"),
        ({"deletion_grace": timedelta(hours=-1)}, ValueError, "deletion_grace must be a number of"),
    ],
)
def test_a_bound_that_cannot_be_is_refused(given, error, said):
    with pytest.raises(error, match=said):
        Retention(**given)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1 day", 86400), ("2 days", 172800), ("90 minutes", 5400), ("1.5hours", 5400), (" 30  seconds ", 30)],
)
def test_spans_are_written_as_people_do(text, seconds):
    assert duration("age", text) == timedelta(seconds=seconds)
    assert duration("age", timedelta(seconds=seconds)) == timedelta(seconds=seconds)


def test_a_sink_takes_nothing_else_for_a_retention():
    with pytest.raises(
        TypeError, match=r'must be a Retention, such as Retention\(max_snapshot_age="1 day"\)'
    ):
        IcebergSink("/lake/events", retention="1 day")


def test_a_bound_is_said_in_one_place():
    with pytest.raises(
        ValueError, match=r"table_properties sets .*max-snapshots to '5', and retention to '2000'"
    ):
        IcebergSink("/lake/events", retention=Retention(), table_properties={properties.MAX_SNAPSHOTS: "5"})
