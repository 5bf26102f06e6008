"""Options of changes by key that contradict one another, or would be ignored, are refused at construction."""

from __future__ import annotations

from typing import Any

import pytest

from streaming_sink.table.key_options import key_options

_REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("insert", {"key": ["id"]}, r'key needs operation="upsert" or operation="delete"'),
    ("upsert", {}, r"operation='upsert' needs the columns of the key"),
    ("upsert", {"key": "id"}, r"key must be a list of columns, such as key=\[\"user_id\"\], not 'id'"),
    ("upsert", {"key": ["id", "id"]}, "key names a column twice"),
    ("upsert", {"key": ["id"], "sequence_by": ""}, "sequence_by must be text, or left out"),
    ("delete", {"key": ["id"], "delete_where": "true"}, "leave out delete_where='true'"),
    ("upsert", {"key": ["id"], "sequence_by": "id"}, "it is no column of the key: 'id'"),
    ("upsert", {"key": ["id"], "except_columns": ["id"]}, "cannot leave out the key or the sequence: 'id'"),
    ("upsert", {"key": ["id"], "partial_update": ["id"]}, "partial_update cannot name the key"),
    ("upsert", {"key": ["id"], "partial_update": []}, "partial_update names no column"),
    ("delete", {"key": ["id"], "partial_update": True}, "leave out partial_update=True"),
    ("upsert", {"key": ["id"], "allow_duplicates": True}, "allow_duplicates=True lets an insert bring"),
    ("upsert", {"key": ["id"], "key_scope": "all"}, "key_scope must be one of table, partition, not 'all'"),
    ("upsert", {"key": ["id"], "key_index": "bloom"}, "key_index must be one of auto, scan, index, not"),
]


@pytest.mark.parametrize(("operation", "given", "told"), _REFUSED)
def test_options_that_contradict_or_would_be_ignored_are_refused(operation, given, told):
    with pytest.raises((TypeError, ValueError), match=told):
        key_options(operation, given)


def test_an_insert_that_is_allowed_to_bring_known_keys_has_no_key_options():
    assert key_options("insert", {"allow_duplicates": True}) is None


def test_options_that_fit_are_kept():
    given = {"key": ["a", "b"], "sequence_by": "at", "partial_update": ["x"], "key_scope": "partition"}
    options = key_options("upsert", given)
    assert options is not None
    assert (options.columns, options.sequence_by, options.partial) == (("a", "b"), "at", ("x",))
    assert (options.scope, options.index, options.deletes_only) == ("partition", "auto", False)
