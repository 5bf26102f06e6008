"""What a table in a catalog holds on to: its metadata files, and what it remembers in its properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.aims import Aim
from benchmarks.catalog_commits import COLUMNS, Appender, new_file
from benchmarks.catalog_writers import let_write
from timeline import names, properties
from timeline.catalogs.state_files import MOST_VALUE_BYTES
from timeline.changes.changes import Append, Change
from timeline.changes.key_changes import AllowDuplicates, DeclareKey
from timeline.changes.outbox_changes import PutOutbox
from timeline.versions.keys import TableKey
from timeline.versions.outbox import Delivery
from timeline.versions.transactions import Transaction
from timeline.versions.work_items import NumberSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.catalog_servers import Served
    from timeline.drafts.draft import Draft

COMMITS = 2_000
MOST_BYTES = 32_000
_WRITERS = 4
_PREVIOUS = 100
"""Previous metadata files that a table of a sink keeps."""
_LONGEST_SECONDS = 1_200.0
_APPLICATIONS, _APP_ID_BYTES = 50, 137
_QUERY = "0a8b4f3c-0a8b-4f3c-9d5e-1d2c3b4a5f6e"
_REJECTED_FILES = 4
_ITEMS, _OPEN_EVERY = 10_000, 7


@dataclass(frozen=True)
class MetadataFiles:
    """What is left of many commits, some of which lost races."""

    kind: str
    commits: int
    lost: int
    """Attempts that did not win."""
    files: int
    missing: int


def count_metadata_files(served: Served, commits: int) -> MetadataFiles:
    """Let writers that do not see each other commit so often together, and count the metadata files."""
    wrote = let_write(served, "many", _WRITERS, _LONGEST_SECONDS, commits, seen=False)
    store = Appender.open(served, served.connect(), "many", "reader").table.store
    files = sum(it.path.endswith(".metadata.json") for it in store.list_folder(names.VERSION_FOLDER))
    made = sum(wrote.commits)
    return MetadataFiles(served.kind, made, (wrote.attempts or 0) - made, files, wrote.missing or 0)


@dataclass(frozen=True)
class _LandItems(Change):
    """A zone has landed items in any order, so that some between them are open."""

    def apply(self, draft: Draft) -> None:
        landed = NumberSet.of(each for each in range(_ITEMS) if each % _OPEN_EVERY)
        draft.properties[f"{properties.WORK_ITEMS_PREFIX}zone"] = landed.to_text()


@dataclass(frozen=True)
class Remembered:
    """The bytes of this sink's properties as the catalog stores them."""

    together: int
    longest_value: int
    longest_key: int
    properties: int
    in_files: int
    """How many of the values are in files that the properties name."""


def measure_properties(served: Served) -> Remembered:
    """Let fifty applications with a quarantine land in a keyed table, and a zone; look at its properties."""
    catalog = served.connect()
    appender = Appender.create(served, catalog, "remembers")
    table, second = appender.table, Appender.create(served, catalog, "remembers__quarantine").table
    table.commit([DeclareKey(TableKey((COLUMNS[0],), COLUMNS[1]))])
    for number in range(_APPLICATIONS):
        app = f"{number}-".ljust(_APP_ID_BYTES, "a")
        rejected = tuple(new_file(second.store, app, each) for each in range(_REJECTED_FILES))
        delivery = Delivery("db.remembers__quarantine", str(second.head.metadata.table_uuid), 0, rejected)
        landed = Append((new_file(table.store, app, number),))
        table.commit(
            [landed, AllowDuplicates(), PutOutbox(app, (delivery,))],
            transaction=Transaction(app, _QUERY, _QUERY, 1_000_000 + number),
        )
    table.commit([_LandItems()])
    stored = catalog.load_table(("db", "remembers")).properties
    ours = {key: value for key, value in stored.items() if properties.is_ours(key)}
    return Remembered(
        sum(len(key.encode()) + len(value.encode()) for key, value in ours.items()),
        max(len(value.encode()) for value in ours.values()),
        max(len(key.encode()) for key in ours),
        len(ours),
        sum(value.startswith(f"{names.STATE_FOLDER}/") for value in ours.values()),
    )


def files_aims(counted: Sequence[MetadataFiles], commits: int) -> list[Aim]:
    """Return the aims: of many commits few metadata files are left, in each kind of catalog."""
    return [
        Aim(
            what=f"{it.kind}: metadata files after {commits:,} commits with lost races",
            bound=_PREVIOUS + 10,
            measured=it.files if commits >= COMMITS else None,
        )
        for it in counted
    ]


def files_table(counted: Sequence[MetadataFiles]) -> str:
    """Return what each catalog has kept."""
    lines = ["| catalog | commits | lost attempts | metadata files | missing |", "| --- |" + " ---: |" * 4]
    lines += [f"| {it.kind} | {it.commits:,} | {it.lost} | {it.files} | {it.missing} |" for it in counted]
    return "\n".join(lines)


def properties_aims(found: Remembered | None) -> list[Aim]:
    """Return the aims: what is remembered is short, and each value of it."""
    together, longest = (None, None) if found is None else (found.together, found.longest_value)
    return [
        Aim(what="bytes of this sink's properties", bound=MOST_BYTES, measured=together),
        Aim(what="bytes of the longest value of them", bound=MOST_VALUE_BYTES, measured=longest),
    ]


def properties_table(found: Remembered) -> str:
    """Return the bytes of what is remembered."""
    return (
        "| properties | in files | bytes together | longest value | longest key |\n"
        "| ---: | ---: | ---: | ---: | ---: |\n"
        f"| {found.properties} | {found.in_files} | {found.together:,} | {found.longest_value:,}"
        f" | {found.longest_key} |"
    )
