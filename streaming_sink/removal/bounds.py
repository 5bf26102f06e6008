"""Bounds in manifests: the least and the greatest value of a file's columns outlive the file."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import Any

import fastavro

from streaming_sink.removal.matching import RowMatcher
from streaming_sink.removal.places import location_of, path_of
from streaming_sink.tasks.leaves import field_id
from timeline import names
from timeline.stores.base import Store

_UNREADABLE = (ValueError, KeyError, TypeError, EOFError, IndexError, AttributeError)
_TRUNCATED = 12
"""Bytes of a truncated text that are compared at least: its last letter may be another one."""


def bounds_of_missing_files(
    store: Store, paths: Collection[str], matcher: RowMatcher, known: dict[str, list[str]]
) -> Iterator[tuple[str, int]]:
    """Yield the manifests among these files, which a listing showed, in which a bound of a file that is
    missing is a wanted key, and how many such files each names. (Bounds of a file that is there are as the
    file itself.) A manifest is read once, where calls share `known`.

    A bound is compared where every column of the key has one; a text that was truncated by what is left.
    """
    for path in paths:
        is_manifest = path.startswith(f"{names.VERSION_FOLDER}/") and path.endswith(".avro")
        if not is_manifest or names.is_manifest_list(path):
            continue
        if path not in known:
            known[path] = _files_that_name_a_key(store, path, matcher)
        if count := sum(each not in paths and _is_missing(store, each) for each in known[path]):
            yield path, count


def _files_that_name_a_key(store: Store, manifest: str, matcher: RowMatcher) -> list[str]:
    """Return the files of which a manifest states a wanted key as a bound."""
    try:
        records: list[Any] = list(fastavro.reader(io.BytesIO(store.read(manifest).data)))
        files = [record["data_file"] for record in records]
        return [path_of(store, file["file_path"]) for file in files if _names_a_key(file, matcher)]
    except FileNotFoundError:
        return []
    except _UNREADABLE:
        return []  # the doctor reports it where a snapshot needs it


def _is_missing(store: Store, path: str) -> bool:
    """Return whether a file is missing that was not in a listing: it may have been written since. One by
    reference, which no snapshot has any more, is as good as missing.
    """
    if location_of(store, path) == path:
        return True
    try:
        store.open_input(path).close()
    except FileNotFoundError:
        return True
    return False


def _names_a_key(file: dict[str, Any], matcher: RowMatcher) -> bool:
    """Return whether a bound of a file is a wanted key."""
    for side in ("lower_bounds", "upper_bounds"):
        bounds = {each["key"]: each["value"] for each in file.get(side) or ()}
        for key in matcher.bounds:
            if all(number in bounds and _is_same(bounds[number], value) for number, value in key):
                return True
        for field in (matcher.rows_as_text, matcher.rescued):
            text = None if field is None else bounds.get(field_id(field))
            if text is not None and matcher.text.may_hold(text.decode(errors="replace")):
                return True
    return False


def _is_same(bound: bytes, value: bytes) -> bool:
    if bound == value:
        return True
    if (len(bound), len(value)) == (4, 8):  # of an int that was widened since
        return bound + (b"\xff" if bound[3] & 0x80 else b"\0") * 4 == value
    compared = len(bound) - 4
    return compared >= _TRUNCATED - 4 and len(value) > len(bound) and value[:compared] == bound[:compared]
