"""Check the mirrors of a table, as notes say what they name: no catalog is asked (R36)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from timeline import names, properties
from timeline.diagnosis.findings import Finding, warning
from timeline.diagnosis.lineage import Lineage
from timeline.errors import CorruptTableError
from timeline.retention.mirrored import MirrorState, read_mirrors
from timeline.stores.base import Store
from timeline.versions.version_file import Version

_AGAIN = "run `streaming-sink mirror`, or the stream that mirrors the table"


def mirror_facts(store: Store, head: Version) -> Iterator[tuple[str, str]]:
    """Yield what each mirror names, as (name, value)."""
    try:
        mirrors = read_mirrors(store, head)
    except CorruptTableError:
        return  # a finding says so
    for state in mirrors:
        named = "no version yet" if state.version is None else f"version {state.version}"
        yield "mirror", f"{state.mirror}: {named}{', a fork' if state.fork else ''}"


def check_mirrors(store: Store, lineage: Lineage, head: Version) -> Iterator[Finding]:
    """Yield what is wrong with the mirrors of a table."""
    try:
        mirrors = read_mirrors(store, head)
    except CorruptTableError as unreadable:
        yield warning(
            kind="mirrors-unreadable",
            what=str(unreadable),
            means="no row is at risk; but nothing of the table expires, and no old version leaves",
            repair=f"remove the property {properties.MIRRORS} from {names.version_path(head.number)}, and"
            f" mirror the table again: {_AGAIN}",
        )
        return
    for state in mirrors:
        if state.fork:
            yield warning(
                kind="mirror-forked",
                what=state.fork,
                means="no row of the table is at risk; what was written through the catalog is in no version"
                " of it, and readers of the catalog see that and not the table",
                repair="where it is another table's mirror leave it, and mirror this one under another name;"
                f" else keep what it has, drop it in the catalog, without its files, and {_AGAIN}; or stop to"
                " mirror this one: `streaming-sink mirror --forget`",
            )
        elif state.is_outdated:
            yield _outdated(state, lineage, head)


def _outdated(state: MirrorState, lineage: Lineage, head: Version) -> Finding:
    there = "is there yet" if state.version in lineage.versions else "was deleted, as old versions are"
    return warning(
        kind="mirror-outdated",
        what=f"the mirror {state.mirror} names version {state.version}, which is"
        f" {timedelta(milliseconds=state.behind_ms(head) or 0)} older than the newest: the file {there}",
        means="no row is at risk; readers of the catalog see an old state, or fail: what a mirror names stays"
        " for a day from the next version on",
        repair=f"{_AGAIN}; or, where the table is mirrored no more, drop the catalog's table and run"
        " `streaming-sink mirror --forget`",
    )
