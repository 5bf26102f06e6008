"""Judges partition specs: no id or name means two things, each file is of the spec that it was written under,
and two applications never take turns. Judges what manifests state of partitions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.raw import OURS, RawTable, ViolationError


@dataclass
class PartitionJudge:
    """Knows the specs of each version of one table, and the spec that each file was written under."""

    written_under: dict[str, int] = field(default_factory=dict)
    _uuid: str = ""
    _specs: dict[int, Any] = field(default_factory=dict)
    _meanings: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Field id → source and transform, for good."""
    _default: int = 0
    _owner: str | None = None

    def check(self, number: int, metadata: dict[str, Any]) -> None:
        """Judge the specs of the next version of the lineage."""
        if metadata["table-uuid"] != self._uuid:
            self._uuid, self._specs, self._meanings = metadata["table-uuid"], {}, {}
            self._default, self._owner = metadata["default-spec-id"], None
        specs = {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
        if len(specs) < len(metadata["partition-specs"]) or metadata["default-spec-id"] not in specs:
            raise ViolationError(f"version {number} has two specs of one id, or no default: {specs}")
        if any(specs.get(spec_id) != fields for spec_id, fields in self._specs.items()):
            raise ViolationError(f"version {number} loses or changes a spec: {self._specs} -> {specs}")
        if len({json.dumps(fields) for fields in specs.values()}) < len(specs):
            raise ViolationError(f"version {number} has two equal specs: {specs}")
        for each in (each for fields in specs.values() for each in fields):
            meaning = each["source-id"], each["transform"]
            if self._meanings.setdefault(each["field-id"], meaning) != meaning:
                raise ViolationError(f"version {number} uses the id of a partition field again: {specs}")
        names = {each["name"] for fields in specs.values() for each in fields}
        if not len(self._meanings) == len(set(self._meanings.values())) == len(names):
            raise ViolationError(f"version {number} has two ids or names of one partition field: {specs}")
        if metadata["last-partition-id"] < max(self._meanings, default=999):
            raise ViolationError(f"version {number} forgets the last id of a partition field")
        self._check_turns(number, metadata)
        self._specs = specs

    def _check_turns(self, number: int, metadata: dict[str, Any]) -> None:
        default = metadata["default-spec-id"]
        if default == self._default:
            return
        owner = json.loads(metadata["properties"][OURS + "repartitioned"])["app-id"]
        if default in self._specs and self._owner not in (None, owner):
            raise ViolationError(
                f"version {number}: {owner} returns to spec {default}, and {self._owner} had changed it"
            )
        self._default, self._owner = default, owner

    def check_files(self, number: int, live: Mapping[str, tuple[int, tuple[int, int]]]) -> None:
        """Judge where the live files are listed: a manifest is of one spec, and so are its files."""
        for uri, (_, (spec_id, _)) in live.items():
            if self.written_under.get(uri, spec_id) != spec_id:
                raise ViolationError(f"version {number} lists a file under spec {spec_id}: {uri}")

    def check_replace(
        self, number: int, removed: Iterable[str], added: Iterable[str], rows: dict[str, tuple[int, ...]]
    ) -> None:
        """Judge a replace: each row stays in the spec that it was written under."""
        was = {row: self.written_under[uri] for uri in removed for row in rows[uri]}
        for uri in added:
            if {was[row] for row in rows[uri]} != {self.written_under[uri]}:
                raise ViolationError(f"a replace of version {number} mixes partition specs: {uri}")


def check_manifests(
    raw: RawTable, number: int, manifest_list: str, before: Collection[str], metadata: dict[str, Any]
) -> None:
    """Judge the manifests that a commit of this protocol has written: each states a schema that the table
    has, its partition fields have the types of that schema's columns, and no value of them is lost.
    """
    schemas = {it["schema-id"]: it for it in metadata["schemas"]}
    for uri in (it["manifest_path"] for it in raw.read(manifest_list)):
        if uri in before:
            continue
        header = raw.header(uri)
        stated, spec = json.loads(header["schema"]), json.loads(header["partition-spec"])
        columns = {it["id"]: it["type"] for it in stated["fields"]}
        table = schemas.get(stated["schema-id"])
        if table is not None and {it["id"]: it["type"] for it in table["fields"]} != columns:
            raise ViolationError(f"version {number} states schema {stated['schema-id']} otherwise: {columns}")
        kinds = _partition_types(json.loads(header["avro.schema"]))
        for each in (it for it in spec if it["transform"] == "identity"):
            name, kind = each["name"], kinds[each["field-id"]]
            if kind != ["null", columns.get(each["source-id"])]:
                raise ViolationError(f"version {number} writes field {name} as {kind}, of {columns}")
        for entry in raw.read(uri):
            values = entry["data_file"]["partition"]
            if len(values) != len(spec) or len(set(values.values())) > 1:
                raise ViolationError(f"version {number} loses values of a partition: {values} of {spec}")


def _partition_types(entry: dict[str, Any]) -> dict[int, Any]:
    """Return the Avro type of each partition field, by its id."""
    file = next(it for it in entry["fields"] if it["name"] == "data_file")["type"]
    partition = next(it for it in file["fields"] if it["name"] == "partition")["type"]
    return {it["field-id"]: it["type"] for it in partition["fields"]}
