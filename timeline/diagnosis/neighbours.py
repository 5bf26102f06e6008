"""Check the files beside the versions: names that another engine could take for one, and the hint."""

from __future__ import annotations

import re
from collections.abc import Iterator

from timeline import names
from timeline.diagnosis.findings import Finding, damage, note, some, warning
from timeline.diagnosis.lineage import Lineage

# v7, v007 or 00007-<uuid>, with .gz before or after .metadata.json: each some engine's spelling of version 7.
_ANY_SPELLING = re.compile(r"^v?0*([0-9]+)(-[^.]*)?(\.[a-z0-9]+)?\.metadata\.json(\.gz)?$")


def check_each_version_has_one_spelling(lineage: Lineage) -> Iterator[Finding]:
    """Yield the names beside the versions, by how another engine may read them."""
    others = []
    for path in lineage.strangers:
        spelled = _ANY_SPELLING.match(path.rpartition("/")[2])
        number = int(spelled[1]) if spelled else None
        if number in lineage.versions or (lineage.versions and number is not None):
            ours = names.version_path(number) if number else "none that this sink writes"
            yield warning(
                kind="version-spelled-twice" if number in lineage.versions else "version-foreign",
                what=f"{path} spells version {number}, as {ours} does"
                if number in lineage.versions
                else f"{path} spells version {number}, which this sink has not written",
                means="this sink ignores it, so none of its rows is at risk. Another engine may read it in"
                " the place of this sink's: rows that another writer put there are not in the table",
                repair=f"find out who wrote it, and move {path} out of metadata/",
            )
        elif number is not None:
            others.append(path)
        else:
            yield note(
                kind="foreign-file",
                what=f"{path} is no file of this sink",
                means="this sink ignores it. A checksum file (.crc) beside a file that has changed since"
                " makes Hadoop readers fail",
                repair="move it out of metadata/ unless something needs it there",
            )
    if others:
        yield damage(
            kind="foreign-table",
            what=f"there is a table of another writer, and none of this sink: {some(others)}",
            means="this sink refuses to write here, and wrote nothing; the other writer's table is as it was",
            repair="give the stream a location of its own",
        )


def check_the_hint_names_the_highest_version(lineage: Lineage, location: str) -> Iterator[Finding]:
    """Yield what is wrong with the hint, which other engines read and this sink does not."""
    if not lineage.versions:
        return
    command = f"write it without a newline: printf %s {lineage.highest} > {location}/{names.HINT_PATH}"
    rewrite = f"nothing while a stream runs: its next commit writes the hint. Else {command}"
    unharmed = "this sink never reads the hint: no row is at risk, and writers may go on."
    if lineage.hint is None:
        yield warning(
            kind="hint-missing",
            what=f"there is no {names.HINT_PATH}",
            means=f"{unharmed} Engines that open a folder (Spark's Iceberg, ClickHouse) find no table",
            repair=rewrite,
        )
        return
    if not re.fullmatch(rb"[0-9]+", lineage.hint):
        yield warning(
            kind="hint-damaged",
            what=f"{names.HINT_PATH} holds {lineage.hint[:40]!r}, and not digits alone",
            means=f"{unharmed} DuckDB, pyiceberg and Polars fail on it, on a newline too",
            repair=command,
        )
        return
    hinted = int(lineage.hint)
    if hinted > lineage.highest:
        yield damage(
            kind="hint-ahead",
            what=f"the hint names version {hinted}, and the highest version is {lineage.highest}",
            means="the hint is written after its version: either the newest versions were deleted, and with"
            " them rows that had been acknowledged are out of sight; or the hint was edited. A"
            f" commit now would take number {lineage.highest + 1} a second time",
            repair=f"stop all writers, and restore {names.version_path(hinted)} (and those between) from a"
            " backup or the bucket's earlier object versions. If no such version ever was: " + command,
        )
    elif hinted not in lineage.versions:
        yield warning(
            kind="hint-dangling",
            what=f"the hint names version {hinted}, which does not exist; the highest is {lineage.highest}",
            means=f"{unharmed} Engines that follow the hint fail",
            repair=rewrite,
        )
    elif hinted < lineage.highest:
        yield note(
            kind="hint-behind",
            what=f"the hint names version {hinted}, and the highest is {lineage.highest}",
            means=f"{unharmed} A writer died, or is, between its commit and the hint; engines that follow it"
            " read an older state",
            repair=rewrite,
        )
