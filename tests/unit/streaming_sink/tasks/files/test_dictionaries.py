"""Which columns a file encodes with a dictionary."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from streaming_sink.tasks.files.dictionaries import choose_dictionaries, distinct_fraction
from streaming_sink.tasks.leaves import leaves


def _chosen(rows=20_000, **columns):
    schema = pa.schema(
        pa.field(name, column.type, metadata={"PARQUET:field_id": str(number)})
        for number, (name, column) in enumerate(columns.items())
    )
    return choose_dictionaries(pa.table(list(columns.values()), schema=schema), leaves(schema))


def test_repetitive_columns_get_one_and_columns_of_different_values_do_not():
    dice = Random(1)
    assert _chosen(
        key=pa.array(range(20_000)),
        category=pa.array([f"c{each % 8}" for each in range(20_000)]),
        price=pa.array([dice.random() for _ in range(20_000)]),
        nothing=pa.nulls(20_000, pa.string()),
        hour=pa.array(sorted(dice.randrange(1000) for _ in range(20_000))),
    ) == ["category", "nothing", "hour"]


def test_values_that_repeat_only_over_a_large_row_group_get_one_there():
    """10,000 users: half of a small file's rows, a fiftieth of a large one's."""
    dice = Random(1)
    for rows, chosen in ((10_000, []), (500_000, ["user"])):
        assert _chosen(user=pa.array([dice.randrange(10_000) for _ in range(rows)])) == chosen


@pytest.mark.parametrize(("rows", "different"), [(5_000, 500), (5_000, 50_000), (200_000, 50_000)])
def test_the_estimate_is_near_the_truth(rows, different):
    dice = Random(2)
    values = [dice.randrange(different) for _ in range(rows)]
    estimate = distinct_fraction(rows, 4096, len(set(values[:4096])))
    assert estimate == pytest.approx(len(set(values)) / rows, abs=0.05)


def test_a_uuid_and_a_nested_leaf_are_judged_by_their_own_values():
    raw = pa.array([each.to_bytes(16, "big") for each in range(5000)], pa.binary(16))
    kinds = pa.struct([pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "9"})])
    nested = pa.StructArray.from_arrays([pa.array(range(5000))], fields=list(kinds))
    assert _chosen(u=pa.ExtensionArray.from_storage(pa.uuid(), raw), s=nested) == []
