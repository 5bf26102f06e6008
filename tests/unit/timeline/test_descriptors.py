"""A data file as JSON and back: an append of what comes back is the append of what went in."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from tests.unit.timeline.world import data_file
from timeline.manifests.entries import entry_partition
from timeline.versions.outbox import describe_file, read_descriptor, to_json

_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.uuids(),
)
_FIELDS = (
    "content", "file_path", "file_format", "record_count", "file_size_in_bytes", "column_sizes",
    "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds",
    "key_metadata", "split_offsets", "sort_order_id", "spec_id", "equality_ids",
)  # fmt: skip


def there_and_back(file: DataFile) -> DataFile:
    return read_descriptor(json.loads(to_json(describe_file(file))))


@given(st.lists(_VALUES, max_size=4))
def test_partition_values_come_back_with_their_types(values: list[Any]) -> None:
    file = there_and_back(data_file("memory://t/data/a.parquet", 3, partition=Record(*values)))
    wanted = entry_partition(data_file("x", 3, partition=Record(*values)))
    got = entry_partition(file)
    assert [type(value) for value in got] == [type(value) for value in wanted]
    for one, other in zip(got, wanted, strict=True):
        both_nan = isinstance(one, float) and math.isnan(one) and math.isnan(other)
        assert both_nan or (one == other and str(one) == str(other))


def test_everything_that_an_entry_states_comes_back() -> None:
    file = data_file(
        "memory://t/data/a.parquet",
        3,
        partition=Record(Decimal("1.50"), UUID(int=7), b"\xff"),
        sort_order_id=2,
        key_metadata=b"key\0",
    )
    file.spec_id = 4
    back = there_and_back(file)
    assert {name: getattr(back, name) for name in _FIELDS} == {name: getattr(file, name) for name in _FIELDS}


def test_a_value_that_no_partition_has_is_refused() -> None:
    with pytest.raises(TypeError, match="not a partition value"):
        describe_file(data_file("a", 1, partition=Record(object())))
