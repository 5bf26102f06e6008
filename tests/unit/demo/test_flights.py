"""The demo's source: all flights, once each, in the order of time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo.flights import FLIGHTS_IN_PACKAGE, FlightFiles, read_flights, write_flight_files


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return read_flights()


@pytest.fixture(scope="module")
def files(flights: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> FlightFiles:
    return write_flight_files(flights, tmp_path_factory.mktemp("flights") / "input", 40)


def test_the_package_has_as_many_flights_as_it_says(flights: pa.Table) -> None:
    assert flights.num_rows == FLIGHTS_IN_PACKAGE


def test_flights_are_in_the_order_of_scheduled_departure(flights: pa.Table) -> None:
    moments = flights.select(["month", "day", "sched_dep_time"])
    assert moments.equals(moments.sort_by([(name, "ascending") for name in moments.column_names]))


def test_files_by_modification_time_hold_the_flights_in_order(files: FlightFiles, flights: pa.Table) -> None:
    by_age = sorted(files.folder.iterdir(), key=lambda path: path.stat().st_mtime)
    assert pa.concat_tables(pq.read_table(path) for path in by_age).equals(flights)


def test_no_two_files_are_of_one_age(files: FlightFiles) -> None:
    ages = [path.stat().st_mtime for path in files.folder.iterdir()]
    assert len(set(ages)) == len(ages)


def test_files_are_of_equal_length_give_or_take_one_row(files: FlightFiles) -> None:
    assert len(files.rows_per_file) == 40
    assert max(files.rows_per_file) - min(files.rows_per_file) <= 1
    assert files.rows == FLIGHTS_IN_PACKAGE
    lengths = [pq.read_metadata(path).num_rows for path in sorted(Path(files.folder).iterdir())]
    assert lengths == list(files.rows_per_file)
