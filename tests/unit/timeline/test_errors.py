"""Errors carry data beside their messages, and reach another process whole."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from tests.unit.timeline.world import Lake
from timeline.changes.changes import Append
from timeline.errors import CommitConflictError, TimelineError, UnknownFeatureError


def _kinds(of: type[TimelineError]) -> Iterator[type[TimelineError]]:
    yield of
    for kind in of.__subclasses__():
        yield from _kinds(kind)


@pytest.mark.parametrize("kind", [k for k in _kinds(TimelineError) if k is not UnknownFeatureError])
def test_every_error_survives_pickling_with_its_attributes(kind: type[TimelineError]) -> None:
    error = kind("why", location="s3://lake", version=3, app_id="a", batch=7, files=["x", "y"])
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "why"
    assert copy.__dict__ == error.__dict__
    assert (copy.location, copy.version, copy.app_id, copy.batch, copy.files) == (
        "s3://lake",
        3,
        "a",
        7,
        ("x", "y"),
    )


def test_an_unknown_feature_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(UnknownFeatureError("why", location="s3://lake", features=["keys"])))
    assert (str(copy), copy.location, copy.features) == ("why", "s3://lake", ("keys",))


def test_a_conflict_names_the_table_the_version_and_the_file() -> None:
    lake = Lake()
    file = lake.file()
    lake.table.commit([Append((file,))])
    with pytest.raises(CommitConflictError) as refused:
        lake.table.commit([Append((file,))])
    conflict = refused.value
    assert conflict.location == lake.store.location
    assert (conflict.version, conflict.files) == (lake.table.head.number, (file.file_path,))
