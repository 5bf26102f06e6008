"""What a failed Spark action is told as."""

from __future__ import annotations

import sys

import pytest

from streaming_sink.spark.worker_failures import (
    UnreadableFileError,
    WorkerEnvironmentError,
    explain_worker_failure,
)
from timeline.errors import SchemaMismatchError, StoreUnavailableError

_HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_another_python_version_is_named_with_what_to_set():
    failure = RuntimeError(
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.12"
    )
    with pytest.raises(
        WorkerEnvironmentError, match=rf"another Python than the driver's {_HERE};.*PYSPARK_PYTHON"
    ):
        raise explain_worker_failure(failure)


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("pyarrow", "pyarrow"),
        ("streaming_sink.tasks.rows.write_task", "streaming_sink"),
        ("timeline", "timeline"),
    ],
)
def test_a_package_that_workers_lack_is_named_with_what_to_set(module, package):
    failure = RuntimeError(f"Traceback ...\nModuleNotFoundError: No module named '{module}'\n\tat org.apache")
    with pytest.raises(WorkerEnvironmentError, match=rf"lacks {package},.*spark.pyspark.python"):
        raise explain_worker_failure(failure)


def test_a_package_of_the_users_own_function_is_left_alone():
    assert explain_worker_failure(RuntimeError("ModuleNotFoundError: No module named 'my_model'")) is None


def test_rows_that_do_not_fit_are_a_schema_mismatch():
    reason = "column is required by the table but holds nulls: a (3)"
    text = f"streaming_sink.tasks.errors.RowsDoNotFitError: {reason}\n"
    explained = explain_worker_failure(RuntimeError(text))
    assert isinstance(explained, SchemaMismatchError)
    assert str(explained) == reason


def test_a_store_that_fails_in_a_task_is_the_stores_error():
    text = "timeline.errors.StoreUnavailableError: the disk is full: free space: /t/data/x.parquet\n\tat org"
    explained = explain_worker_failure(RuntimeError(text))
    assert isinstance(explained, StoreUnavailableError)
    assert str(explained) == "the disk is full: free space: /t/data/x.parquet"


def test_a_file_that_a_task_cannot_read_is_damage_of_the_table():
    text = "streaming_sink.tasks.errors.DataFileError: a data file is missing: /t/data/x.parquet\n\tat org"
    explained = explain_worker_failure(RuntimeError(text))
    assert isinstance(explained, UnreadableFileError)
    assert str(explained) == "a data file is missing: /t/data/x.parquet"


def test_any_other_failure_is_raised_as_it_is():
    assert explain_worker_failure(RuntimeError("division by zero")) is None
