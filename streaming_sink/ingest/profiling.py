"""Profiles the files of a work item: what each holds, whether it fits the table, and which table that is."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as spark

from planners.ingestion.buffering import BufferedFile, PlannedItem
from streaming_sink.checks.expectations import absent_columns
from streaming_sink.ingest.jobs import run_tasks
from streaming_sink.options.table_options import SinkOptions
from streaming_sink.spark.jobs import parallelism
from streaming_sink.spark.worker_failures import has_lost_its_worker
from streaming_sink.table.arrow_types import arrow_schema
from streaming_sink.table.fitting import fit_batch
from streaming_sink.table.keys import written_schema
from streaming_sink.table.parquet_properties import parquet_settings
from streaming_sink.table.schema import spark_columns
from streaming_sink.table.spec import partition_sources
from streaming_sink.tasks import fast_workers
from streaming_sink.tasks.ingest.profile_task import (
    ProfileJob,
    ProfileTask,
    SourceColumns,
    SourceMisstated,
    SourceProfile,
    SourceRejected,
)
from streaming_sink.tasks.ingest.sources import Sources
from streaming_sink.tasks.job import PartitionSource
from streaming_sink.writing.target import Destination, Target
from timeline.errors import CommitConflictError, SchemaMismatchError
from timeline.properties import NAME_MAPPING, name_mapping
from timeline.versions.work_items import WorkItem

_LOG = logging.getLogger("streaming_sink")
_TRIES = 5
_PROFILED_TOGETHER = 5_000
"""Files that one task profiles at most: a task that fails is run again for no more."""
_FEW = 16


@dataclass
class Work:
    """The files of an item that may still land, and why the others may not."""

    item: PlannedItem
    rejected: dict[int, str] = field(default_factory=dict)

    def files(self) -> list[tuple[int, BufferedFile]]:
        return [(at, file) for at, file in enumerate(self.item.files) if at not in self.rejected]

    def part(self, numbers: Iterable[int]) -> Work:
        """Return the work with these files alone."""
        others = set(range(len(self.item.files))).difference(numbers)
        return Work(self.item, dict.fromkeys(sorted(others), "it is not of this part"))

    def reject(self, refused: Iterable[SourceRejected]) -> None:
        for each in refused:
            self.rejected[each.number] = each.reason

    @property
    def reasons(self) -> dict[str, str]:
        return {self.item.files[number].path: reason for number, reason in sorted(self.rejected.items())}


@dataclass
class _Profiles:
    profiles: list[tuple[int, SourceProfile]] = field(default_factory=list)
    columns: dict[tuple[int, int], SourceColumns] = field(default_factory=dict)


@dataclass
class Profiled:
    """The files of an item that can land, and the table that they fit."""

    target: Target | None
    profiles: list[SourceProfile] = field(default_factory=list)
    came: dict[str, spark.DataType] = field(default_factory=dict)
    """All columns that a file has: with the table's types, and where it has none with the first file's."""

    def know(self, columns: spark.StructType | str) -> None:
        """Take note of the columns of files that can land."""
        if not isinstance(columns, str) and self.target is not None:
            known = absent_columns(self.target.schema, spark.StructType())
            for column in columns:
                if isinstance(self.came.get(column.name, spark.NullType()), spark.NullType):
                    self.came[column.name] = known.get(column.name, column.dataType)

    @property
    def columns(self) -> spark.StructType:
        """What the files have together; a column that is null in all of them is of text."""
        return spark.StructType(
            [
                spark.StructField(name, spark.StringType() if isinstance(kind, spark.NullType) else kind)
                for name, kind in self.came.items()
            ]
        )

    def reject(self, work: Work, refused: Iterable[SourceRejected]) -> None:
        """Leave out files of the item that cannot land."""
        work.reject(refused)
        self.profiles = [each for each in self.profiles if each.number not in work.rejected]

    def rewrite(self, work: Work, misstated: Iterable[SourceMisstated]) -> None:
        """Have files of the item consolidated that would have been registered."""
        why = {each.number: each.reason for each in misstated}
        for number, reason in why.items():
            _LOG.warning("%s is not registered, but consolidated: %s", work.item.files[number].path, reason)
        self.profiles = [replace(it, rewritten=why.get(it.number, it.rewritten)) for it in self.profiles]


class Profiling:
    """Profiles files for one table, which it creates if there is none, and evolves as the contract says."""

    def __init__(
        self, options: SinkOptions, destination: Destination, sources: Sources, registers: bool = False
    ) -> None:
        self._options, self._destination, self._sources = options, destination, sources
        self._registers = registers

    def profile(self, session: SparkSession, work: Work, item: WorkItem) -> Profiled:
        """Return the table that the files fit, and what each file holds; no table, where no file can be read
        and there is none.
        """
        target = None if self._destination.table is None else Target.of(self._destination.table)
        if target is None:
            target = self._new_target(session, work)
            if target is None:
                return Profiled(None)
            if target.table is None:
                target = Target.of(self._destination.create(target))
        for _ in range(_TRIES):
            found = self._run_profiles(session, work, target)
            came = {
                each.schema: self._typed(spark_columns(each.schema), target)
                for each in found.columns.values()
            }
            kinds = {schema: self._written(columns) for schema, columns in came.items()}
            grown, unfit = self._evolve(target, kinds, item)
            known, target = target, grown
            if (known.schema.schema_id, known.spec.spec_id) == (target.schema.schema_id, target.spec.spec_id):
                break
        fits = {
            schema: unfit.get(schema) or self._why_unfit(target, columns) for schema, columns in kinds.items()
        }
        profiled, noted = Profiled(target), set[bytes]()
        for task, each in found.profiles:
            schema = found.columns[task, each.columns].schema
            if (reason := fits[schema]) is not None:
                work.rejected[each.number] = reason
                continue
            profiled.profiles.append(each)
            if schema not in noted:  # nearly all files have the columns of another
                noted.add(schema)
                profiled.know(came[schema])
        return profiled

    def _typed(self, columns: spark.StructType | str, target: Target) -> spark.StructType | str:
        """Give columns of which a file has nulls alone, and so no type, that of the table's column; one that
        the table does not have is left out, unless the options say that the table does not get it.
        """
        if isinstance(columns, str):
            return columns
        known = absent_columns(target.schema, spark.StructType())
        excepted = () if self._options.keys is None else self._options.keys.except_columns
        typed = []
        for column in columns:
            if not isinstance(column.dataType, spark.NullType) or column.name in excepted:
                typed.append(column)
            elif column.name in known:
                typed.append(spark.StructField(column.name, known[column.name]))
        return spark.StructType(typed)

    def _written(self, columns: spark.StructType | str) -> spark.StructType | str:
        """Return the columns of a file that the table gets; why none, where it lacks one of the options."""
        if isinstance(columns, str) or self._options.keys is None:
            return columns
        try:
            return written_schema(self._options.keys, columns)
        except SchemaMismatchError as mismatch:
            return str(mismatch)

    def _new_target(self, session: SparkSession, work: Work) -> Target | None:
        """Return a table with the columns of the first file that a table can have, and that fits such a one;
        None, where none is, and all files are rejected then. Else the files before it are judged by that
        table, as all others.
        """
        files, unfit = work.files(), dict[int, str]()
        for start in range(0, len(files), _FEW):
            job = self._profile_job(files[start : start + _FEW], None)
            results = self._run(session, "columns of new files", [job])[0]
            work.reject(each for each in results if isinstance(each, SourceRejected))
            columns = {each.number: each.schema for each in results if isinstance(each, SourceColumns)}
            for each in results:
                if isinstance(each, SourceProfile):
                    found = self._written(spark_columns(columns[each.columns]))
                    try:
                        if isinstance(found, str):
                            unfit[each.number] = found
                            continue
                        target = self._destination.target(_with_types(found), fresh=False)
                        # Read by the types that were inferred of it, it may be rejected yet.
                        alone = work.part([each.number])
                        self._run_profiles(session, alone, target)
                        if each.number not in alone.rejected:
                            return target
                        unfit[each.number] = alone.rejected[each.number]
                    except SchemaMismatchError as mismatch:
                        unfit[each.number] = str(mismatch)
        work.rejected.update(unfit)
        return None

    def _run_profiles(self, session: SparkSession, work: Work, target: Target) -> _Profiles:
        files = work.files()
        tasks = max(1, min(parallelism(session), len(files) // _FEW), -(-len(files) // _PROFILED_TOGETHER))
        jobs = [self._profile_job(files[at::tasks], target) for at in range(tasks)]
        found = _Profiles()
        for task, results in enumerate(self._run(session, "profile", jobs)):
            work.reject(each for each in results if isinstance(each, SourceRejected))
            found.profiles += [(task, each) for each in results if isinstance(each, SourceProfile)]
            found.columns |= {
                (task, each.number): each for each in results if isinstance(each, SourceColumns)
            }
        found.profiles.sort(key=lambda each: each[1].number)
        return found

    def _profile_job(self, files: Sequence[tuple[int, BufferedFile]], target: Target | None) -> ProfileJob:
        schema = None if target is None else arrow_schema(target.schema)
        # Rows of a table with a key find their partition where their key is looked for.
        if target is None or self._options.keys is not None:
            partition_by: tuple[PartitionSource, ...] = ()
        else:
            partition_by = partition_sources(target.schema, target.spec)
        registers = copies = None
        if target is not None and self._registers:
            registers = self._options.sizing if may_register(target) else None
            copies = parquet_settings(target.properties, target.schema)
        fast = fast_workers.is_enabled()
        return ProfileJob(self._sources, tuple(files), schema, partition_by, registers, copies, fast)

    def _evolve(
        self, target: Target, kinds: Mapping[bytes, spark.StructType | str], item: WorkItem
    ) -> tuple[Target, dict[bytes, str]]:
        """Return the target after the table has grown as the contract allows, and why the files of some
        schemas cannot fit it.
        """
        fitted, unfit = target, dict[bytes, str]()
        for schema, columns in kinds.items():
            if isinstance(columns, str):
                continue
            try:
                fitted = self._destination.fit(fitted, columns, item)
            except SchemaMismatchError as mismatch:
                unfit[schema] = str(mismatch)
        assert fitted.table is not None
        return Target.of(fitted.table), unfit

    def _why_unfit(self, target: Target, columns: spark.StructType | str) -> str | None:
        if isinstance(columns, str):
            return columns
        try:
            fit = fit_batch(target.schema, columns, self._options.contract)
        except SchemaMismatchError as mismatch:
            return str(mismatch)
        if fit.wanted is not None:  # its columns would be left out
            raise CommitConflictError("the table's schema was changed again and again; try again")
        for path, misfit in fit.misfits.items():
            return f"column {'.'.join(path)} does not fit the table's: {misfit}"
        return None

    def _run(self, session: SparkSession, what: str, jobs: Sequence[ProfileJob]) -> list[list[Any]]:
        """Return what tasks find of these files. Where one has lost its worker, footers are looked at before
        pyarrow is asked for statistics, since it ends the process for some.
        """
        described = f"{self._options.location}: {what}"
        try:
            return run_tasks(session, described, [ProfileTask(job) for job in jobs])
        except Exception as failure:
            if not has_lost_its_worker(failure):
                raise
            _LOG.warning("%s: a worker was lost, and files are looked at again: %s", described, failure)
            return run_tasks(session, described, [ProfileTask(replace(job, careful=True)) for job in jobs])


def may_register(target: Target) -> bool:
    """Return whether readers find the columns of files without field ids by the names of the table's own."""
    return target.properties.get(NAME_MAPPING) == name_mapping(target.schema)


def _with_types(columns: spark.StructType) -> spark.StructType:
    """Return the columns that a new table can have: nulls alone have no type yet."""
    return spark.StructType([each for each in columns if not isinstance(each.dataType, spark.NullType)])
