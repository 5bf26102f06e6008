"""Reports of what a sink does for its tables after commits: fills, mirrors, deliveries. Clustering has its
own report, `streaming_sink/reports/cluster_report.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from planners.sizing import count_text, size_text


@dataclass(frozen=True, kw_only=True)
class FillReport:
    """A pass beside the stream that merged small files, folded files with deleted rows, and merged delete
    files. Files and bytes are those of the merges that are live; sizes in bytes, times in milliseconds.
    """

    kind: ClassVar[str] = "fill"
    table: str
    """The table's location: of the sink's table, or of its quarantine or change log."""
    outcome: str
    """"committed"; "nothing" (no merge is live); "failed"; "unknown" (it may have been published, and no file
    was deleted); or "abandoned" (Spark was stopped). A later pass does what one has left.
    """
    why: str = ""
    """Why it failed."""
    version: int | None = None
    attempts: int = 0
    """Attempts of its commit; each but the last lost a race to another writer."""
    input_files: int = 0
    output_files: int = 0
    output_bytes: int = 0
    folded_deletes: int = 0
    """Delete files that left the table with the files that were merged."""
    merged_deletes: int = 0
    """Delete files of other data files that were merged."""
    written_deletes: int = 0
    """What these became."""
    problems: tuple[str, ...] = ()
    """Why merges were skipped or dropped: their files stay as they were."""
    waited: str = ""
    """Why a batch waited for the pass; empty for a pass beside the stream."""
    milliseconds: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that `json.dumps` takes."""
        return {"kind": self.kind, **asdict(self)}

    def line(self) -> str:
        """Return the report as a part of a log line; "" where there was nothing to do."""
        lines = [self.why] if self.why else []
        if self.input_files:
            deletes = (
                f", {count_text(self.folded_deletes, 'delete file')} folded" if self.folded_deletes else ""
            )
            size = size_text(self.output_bytes)
            lines.append(
                f"filled beside the stream: {count_text(self.input_files, 'file')} ->"
                f" {self.output_files:,} ({size}){deletes}, version {self.version}"
            )
        if self.merged_deletes:
            lines.append(
                f"merged beside the stream: {count_text(self.merged_deletes, 'delete file')} ->"
                f" {self.written_deletes:,}, version {self.version}"
            )
        lines += [f"a fill beside the stream was left out: {it}" for it in self.problems]
        said = "; ".join(lines)
        return f"{self.waited}, so the batch waited: {said}" if self.waited else said


@dataclass(frozen=True, kw_only=True)
class MirrorReport:
    """What became of the mirror of a table: the table of a catalog that names its newest version."""

    kind: ClassVar[str] = "mirror"
    table: str
    """The location of the table that is mirrored."""
    mirror: str
    """How reports call the table in the catalog."""
    outcome: str
    """"mirrored"; "current" (it named the newest version before); "forked" (what the catalog has there is no
    version of the table, and was left as it is); "unknown" (no clear answer: the next pass finds out); or
    "failed". No batch fails for it, and the next pass does what one has left.
    """
    version: int | None = None
    """The version that the catalog names, where that is known."""
    why: str = ""
    milliseconds: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that `json.dumps` takes."""
        return {"kind": self.kind, **asdict(self)}

    def line(self) -> str:
        """Return the report as a part of a log line."""
        if self.version is None:
            return f"the mirror {self.mirror} is {self.outcome}: {self.why}"
        return f"the mirror {self.mirror} names version {self.version}"


@dataclass(frozen=True, kw_only=True)
class DeliveryReport:
    """An append to a second table of what commits to the main table have left for it."""

    kind: ClassVar[str] = "deliver"
    table: str
    """The location of the second table."""
    main_table: str
    app_id: str
    outcome: str
    """"delivered"; "delivered before"; or "undeliverable" (the second table was dropped with its files)."""
    rows: int = 0
    files: int = 0
    milliseconds: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that `json.dumps` takes."""
        return {"kind": self.kind, **asdict(self)}

    def line(self) -> str:
        """Return the report as one log line."""
        rows, files = count_text(self.rows, "row"), count_text(self.files, "file")
        return f"{rows} of {self.app_id} {self.outcome} into {self.table}: {files}"
