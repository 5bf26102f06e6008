"""Whether the columns of a data file without field ids are known by their names."""

from __future__ import annotations

import json
from typing import Any

from timeline.properties import NAME_MAPPING, name_mapping
from timeline.versions.head import Head


def needs_field_ids(head: Head) -> bool:
    """Return whether a data file must have field ids to be read: not where the table's name mapping has each
    column under its present name and no other. Of one that was renamed or dropped older files say nothing.
    """
    if not head.version.is_shared:
        return False
    try:
        stated = _by_id(json.loads(head.properties.get(NAME_MAPPING, "[]")))
    except (ValueError, LookupError, TypeError):
        return True
    return stated != _by_id(json.loads(name_mapping(head.schema)))


def _by_id(fields: list[dict[str, Any]]) -> dict[int, tuple[list[str], Any]]:
    return {each["field-id"]: (sorted(each["names"]), _by_id(each.get("fields") or [])) for each in fields}
