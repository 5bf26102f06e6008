"""`python -m demo.ingest`: push 2,000 files of flights into a buffer zone, and land them as few."""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from demo import duck
from demo.figures import bytes_text
from demo.flights import read_flights, write_flight_files
from demo.lanes import newest_metadata
from demo.session import quiet_session

if TYPE_CHECKING:
    import pyarrow as pa

    from streaming_sink import ingest

OUTPUT = Path("demo-output") / "ingest"
FILES = 2_000
_PUSHES = 20


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m demo.ingest", description=__doc__)
    parser.add_argument("--files", type=int, default=FILES, help="source files (%(default)s)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="a folder that is emptied (%(default)s)")
    options = parser.parse_args(arguments)
    shutil.rmtree(options.output, ignore_errors=True)
    return _run(options.output, options.files)


def _run(output: Path, count: int) -> int:
    from streaming_sink import ingest
    from streaming_sink.zones.status import status

    flights = read_flights()
    print(f"cutting {flights.num_rows:,} flights into {count:,} Parquet files, in no order of their months")
    source = write_flight_files(_shuffled(flights), output / "drop", count)
    size = sum(path.stat().st_size for path in source.folder.iterdir())
    print("starting Spark")
    session = quiet_session("demo-ingest", {})
    zone = ingest.BufferZone(
        str(output / "zone"),
        table=str(output / "table"),
        partition_by=["month"],
        rules=ingest.Rules(max_files=max(1, count // 2), max_age="10 seconds"),
    )
    print(f"rules: {zone.rules.max_files:,} files, or ten seconds; a producer pushes {_PUSHES} times\n")
    landed = _push_and_land(session, zone, sorted(source.folder.iterdir()))
    session.stop()
    found = status(zone)
    metadata = newest_metadata(output / "table")
    assert metadata is not None
    connection = duck.connect()
    table = duck.iceberg_table(connection, metadata)
    [(rows,)] = connection.execute(f"SELECT count(*) FROM {table.expression}").fetchall()
    written = sum(Path(file).stat().st_size for file in table.files)
    lag = ", ".join(f"{name} {value / 1000:.1f} s" for name, value in found.lag_ms.items())
    print(f"\n  in     {count:,} files, {bytes_text(size)}, {flights.num_rows:,} rows")
    print(f"  out    {len(table.files):,} files, {bytes_text(written)}, by {len(landed):,} commits")
    print(f"  DuckDB {rows:,} rows")
    print(f"  lag    {lag}, from the first push of a work item to its commit")
    print(f"  ledger streaming-sink ingest ledger {output / 'zone'} | head")
    print(f"  page   streaming-sink ingest serve {output / 'zone'}, then http://127.0.0.1:8765/")
    if rows != flights.num_rows:
        print(f"error: {rows:,} of {flights.num_rows:,} rows are in the table", file=sys.stderr)
        return 1
    return 0


def _push_and_land(session: object, zone: ingest.BufferZone, files: list[Path]) -> list[ingest.Landed]:
    from streaming_sink import ingest

    stop, started = threading.Event(), time.monotonic()
    landed: list[ingest.Landed] = []

    def show(item: ingest.Landed) -> None:
        landed.append(item)
        done = sum(each.files_in + len(each.rejected) for each in landed)
        print(
            f"  {time.monotonic() - started:5.1f} s  {item.files_in:>5,} files → {item.files_out:>3,} in"
            f" {item.partitions} partitions, {item.rows:>7,} rows; {done:,} of {len(files):,} files landed",
            flush=True,
        )
        if done == len(files):
            stop.set()

    def push() -> None:
        share = -(-len(files) // _PUSHES)
        for at in range(0, len(files), share):
            zone.push(*map(str, files[at : at + share]))
            time.sleep(0.2)

    producer = threading.Thread(target=push, daemon=True)
    producer.start()
    ingest.run(session, zone, stop=stop, poll_seconds=0.2, on_landed=show)  # type: ignore[arg-type]
    producer.join()
    return landed


def _shuffled(flights: pa.Table) -> pa.Table:
    """Return the flights in an order in which every file has rows of many months."""
    return flights.sort_by([("day", "ascending"), ("sched_dep_time", "ascending"), ("tailnum", "ascending")])


if __name__ == "__main__":
    sys.exit(main())
