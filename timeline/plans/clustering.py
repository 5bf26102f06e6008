"""The kind of clustering plans: each work item is a group of files that one REPLACE exchanges for others."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import DataFile

from timeline import properties
from timeline.changes.changes import Replace
from timeline.plans.kinds import Item, PlanKind
from timeline.plans.plan_file import STRINGS, TEXTS, PlanSchema, array_of, field, record

_STRATEGY = record(
    "Strategy",
    "What chose files, or rewrites a group's rows. A name that a registry knows: never an import path.",
    field("name", "string", "Its registered name."),
    field("parameters", TEXTS, "Its parameters by name."),
)
_GROUP = record(
    "Group",
    "Files of one partition that are rewritten together: one task, one all-or-nothing replacement.",
    field("inputs", STRINGS, "Locations of the files, as manifests spell them."),
    field("partition", STRINGS, "The partition's values as text, for people."),
    field("bytes", "long", "Size of the inputs together."),
    field("rows", "long", "Rows of the inputs together."),
    field("output_files", "long", "How many files the rows are expected to make."),
    field("sort_by", STRINGS, "What the rows are ordered by; empty where files are only joined."),
    field("strategy", "Strategy", "What rewrites the rows."),
    field("remainder", "boolean", "The bytes are less than a whole number of target files."),
    field("level", "long", "How often the rows will have been clustered."),
    field("files_saved", "long", "The benefit: how many files fewer queries open."),
    field("reasons", STRINGS, "Why these files, in words."),
)
_LEFT_OUT = record(
    "LeftOut",
    "A file that the plan leaves alone.",
    field("path", "string", "Its location."),
    field("partition", STRINGS, "Its partition's values as text, for people."),
    field("bytes", "long", "Its size."),
    field("reason", "string", "Why, in words."),
)
_PLAN = record(
    "Plan",
    "What one pass of clustering rewrites.",
    field("planned_at", "long", "When it was planned, by the planner's measure of time."),
    field("target_file_bytes", "long", "The size that output files aim at."),
    field("selected_by", array_of(_STRATEGY), "What chose the files."),
    field("groups", array_of(_GROUP), "The groups, most benefit per byte first."),
    field(
        "left_out",
        array_of(_LEFT_OUT),
        "Files that were considered and left alone; may be missing.",
        default=[],
    ),
)


def _inputs(group: Item) -> Sequence[str]:
    locations: Sequence[str] = group["inputs"]
    return locations


def _change(group: Item, files: Sequence[DataFile], applied: frozenset[str], deleted_rows: int) -> Replace:
    return Replace(frozenset(_inputs(group)), tuple(files), applied, deleted_rows)


CLUSTERING = PlanKind(
    name="clustering",
    schema=PlanSchema(
        "ClusteringPlan", "The instant `requested`: a plan of clustering, waiting to be executed.", _PLAN
    ),
    items="groups",
    inputs=_inputs,
    change=_change,
    timeout_property=properties.RESERVATION_TIMEOUT_MS,
)
