"""The table as its bytes say it is: version files read as JSON, manifests by our own Avro reader.

Nothing of the code under test has a part in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.avro import read_avro, read_header

OURS = "streaming-sink."
PATH = 2147483546
"""Field id of the path in a position-delete file."""
ADDED, DELETED = 1, 2
"""Status of a manifest's entry; 0 is one that exists."""


Ref = tuple[str, int, str]
"""A ref: its name, its snapshot, its kind."""


class ViolationError(AssertionError):
    """A rule of the protocol was broken; the message says which fact contradicts which."""


@dataclass
class SnapshotFiles:
    """What one snapshot reaches."""

    live: dict[str, tuple[int, tuple[int, int]]]
    """Data file → (sequence number, partition), the latter as (spec, value of p)."""
    deletes: list[tuple[int, tuple[int, int], str | None, str]]
    """(sequence number, partition, the one data file that it names, location) of delete files."""
    objects: frozenset[str]
    """Everything that a reader of the snapshot may open."""


@dataclass
class Member:
    """One version of the lineage: the first bytes that took the number above the highest."""

    number: int
    commit_id: str
    uuid: str
    updated_ms: int
    files: SnapshotFiles
    snapshots: dict[int, dict[str, Any]]
    current: int | None
    transactions: dict[str, dict[str, Any]]
    properties: dict[str, str]
    pending: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Plan that is announced → version and time of its announcement."""
    pinned: frozenset[int] = frozenset()
    """Snapshots that a branch or tag other than main names."""
    staged: dict[str, int] = field(default_factory=dict)
    """Wap id that a tag names → its snapshot."""
    last_sequence: int = 0
    refs: frozenset[Ref] = frozenset()
    """Those beside main."""

    @property
    def is_dropped(self) -> bool:
        """Whether it says that the table was dropped."""
        return "dropped" in self.properties.get(OURS + "required-features", "")


@dataclass
class RawTable:
    """What is stored, parsed once: manifests and lists never change."""

    location: str
    objects: dict[str, bytes] = field(default_factory=dict)
    _snapshots: dict[str, SnapshotFiles] = field(default_factory=dict)
    _entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def member(self, number: int, metadata: dict[str, Any]) -> Member:
        """Return the version of the lineage that a version file makes."""
        told = metadata["properties"]
        snapshots = {s["snapshot-id"]: s for s in metadata.get("snapshots") or []}
        current = metadata.get("current-snapshot-id")
        current = None if current in (None, -1) else current
        prefix = OURS + "txn."
        return Member(
            number,
            told[OURS + "commit-id"],
            metadata["table-uuid"],
            metadata["last-updated-ms"],
            SnapshotFiles({}, [], frozenset())
            if current is None
            else self.files_of(snapshots[current]["manifest-list"]),
            snapshots,
            current,
            {key.removeprefix(prefix): json.loads(v) for key, v in told.items() if key.startswith(prefix)},
            told,
            _pending(told.get(OURS + "pending-plans", "")),
            frozenset(
                ref["snapshot-id"] for name, ref in (metadata.get("refs") or {}).items() if name != "main"
            ),
            {
                name.removeprefix("wap-"): ref["snapshot-id"]
                for name, ref in (metadata.get("refs") or {}).items()
                if name.startswith("wap-")
            },
            metadata["last-sequence-number"],
            refs_of(metadata),
        )

    def files_of(self, manifest_list: str) -> SnapshotFiles:
        """Return what the snapshot of a manifest list reaches."""
        if manifest_list not in self._snapshots:
            live: dict[str, tuple[int, tuple[int, int]]] = {}
            deletes = []
            objects = {manifest_list}
            for manifest in self.read(manifest_list):
                objects.add(manifest["manifest_path"])
                for entry in self.read(manifest["manifest_path"]):
                    if entry["status"] == DELETED:
                        continue
                    file = entry["data_file"]
                    sequence = entry["sequence_number"]
                    at = manifest["sequence_number"] if sequence is None else sequence
                    partition = manifest["partition_spec_id"], file["partition"]["p"]
                    objects.add(file["file_path"])
                    if manifest["content"] == 1:
                        deletes.append((at, partition, _only_file(file), file["file_path"]))
                    elif file["file_path"] in live:
                        raise ViolationError(f"a file is live twice: {file['file_path']}")
                    else:
                        live[file["file_path"]] = at, partition
            self._snapshots[manifest_list] = SnapshotFiles(live, deletes, frozenset(objects))
        return self._snapshots[manifest_list]

    def read(self, uri: str) -> list[dict[str, Any]]:
        """Return the records of a manifest or a list."""
        if uri not in self._entries:
            self._entries[uri] = read_avro(self._bytes(uri))
        return self._entries[uri]

    def header(self, uri: str) -> dict[str, str]:
        """Return what a manifest states of itself."""
        return read_header(self._bytes(uri))

    def _bytes(self, uri: str) -> bytes:
        data = self.objects.get(uri.removeprefix(f"{self.location}/"))
        if data is None:
            raise ViolationError(f"a version refers to metadata that does not exist: {uri}")
        return data


def refs_of(metadata: dict[str, Any]) -> frozenset[Ref]:
    """Return the refs of a table's metadata beside main."""
    refs = (metadata.get("refs") or {}).items()
    return frozenset((name, ref["snapshot-id"], ref["type"]) for name, ref in refs if name != "main")


def _only_file(delete: dict[str, Any]) -> str | None:
    """The data file that a delete file names, where its paths have one and the same value as bounds."""
    lower, upper = (
        {pair["key"]: pair["value"] for pair in delete[bounds] or ()}.get(PATH)
        for bounds in ("lower_bounds", "upper_bounds")
    )
    return lower.decode() if lower is not None and lower == upper else None


def _pending(text: str) -> dict[str, tuple[int, int]]:
    plans = [entry.split("@") for entry in text.split(",") if entry]
    return {plan: (int(version), int(time_ms)) for plan, version, time_ms in plans}
