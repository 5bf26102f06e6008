"""Options of writes by key that contradict one another are refused when the write is made."""

from __future__ import annotations

from typing import Any

import pytest

from streaming_sink import Append, Delete, TableOptions, Upsert
from streaming_sink.options.values.writes import WriteByKey, write_from_dict, write_to_dict

_REFUSED: list[tuple[type[WriteByKey], dict[str, Any], str]] = [
    (Upsert, {"key": []}, "key must name the columns of the key"),
    (Upsert, {"key": "id"}, r"key must be a list of columns, such as key=\[\"user_id\"\], not 'id'"),
    (Upsert, {"key": ["id", "id"]}, "key names a column twice"),
    (Upsert, {"key": ["id"], "sequence_by": ""}, "sequence_by must be text, or left out"),
    (Delete, {"key": ["id"], "delete_where": "true"}, "unexpected keyword argument 'delete_where'"),
    (Upsert, {"key": ["id"], "sequence_by": "id"}, "it is no column of the key: 'id'"),
    (Upsert, {"key": ["id"], "except_columns": ["id"]}, "cannot leave out the key or the sequence: 'id'"),
    (Upsert, {"key": ["id"], "partial_update": ["id"]}, "partial_update cannot name the key"),
    (Upsert, {"key": ["id"], "partial_update": []}, "partial_update names no column"),
    (Upsert, {"key": ["id"], "key_scope": "all"}, "key_scope must be one of table, partition, not 'all'"),
    (Upsert, {"key": ["id"], "key_index": "bloom"}, "key_index must be one of auto, scan, index, not"),
    (Upsert, {"key": ["id"], "changelog_table": 5}, "changelog_table must be the location of a table"),
]


@pytest.mark.parametrize(("kind", "given", "told"), _REFUSED)
def test_options_that_contradict_one_another_are_refused(
    kind: type[WriteByKey], given: dict[str, Any], told: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        kind(**given)


def test_options_that_fit_are_kept_print_as_they_are_written_and_are_a_dict_and_back() -> None:
    write = Upsert(key=["a", "b"], sequence_by="at", partial_update=["x"], key_scope="partition")
    assert repr(write) == (
        "Upsert(key=['a', 'b'], sequence_by='at', key_scope='partition', partial_update=['x'])"
    )
    assert eval(repr(write)) == write
    assert write_from_dict(write_to_dict(write)) == write
    assert (write.keeps, write.condition, write.deletes_only) == (("x",), None, False)


def test_a_write_by_key_merges_no_small_files_in_its_batches_and_has_one_partitioning() -> None:
    for changed, told in (
        ({"sizing": {"fill": "inline"}}, 'leave out fill="inline"'),
        (
            {"contract": {"partitioning": "evolve"}, "partition_by": ["p"]},
            'leave out partitioning="evolve"',
        ),
    ):
        stored = TableOptions(write=Upsert(key=["id"], key_scope="partition")).to_dict() | changed
        with pytest.raises(ValueError, match=told):
            TableOptions.from_dict(stored)


def test_an_append_says_whether_it_may_bring_known_keys() -> None:
    assert TableOptions(write=Append(allow_duplicates=True)).allow_duplicates
    with pytest.raises(TypeError, match="allow_duplicates must be True or False, not 'yes'"):
        Append(allow_duplicates="yes")  # type: ignore[arg-type]
