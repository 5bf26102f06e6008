"""The examples run as their first lines say, and land what they say."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from tests.spark.streams import metadata_file

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def test_avro_of_a_registry_whose_schema_changes(tmp_path: Path) -> None:
    command = [sys.executable, "examples/avro_registry.py", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "id widened from int to long, placed_at added as timestamptz" in ran.stdout
    table, quarantine = (
        StaticTable.from_metadata(metadata_file(str(tmp_path / name)) or "").scan().to_arrow()
        for name in ("orders", "orders__quarantine")
    )
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == [
        (1, 9.5, None, None),
        (2, 1.5, None, None),
        (3, 2.0, "IN", None),
        (4, 3.0, None, None),
        (6, 6.0, None, epoch),
        (3_000_000_000, 4.0, None, epoch),
    ]
    assert len(quarantine) == 3
