"""What went wrong in a Spark worker, said so that a person knows what to set."""

from __future__ import annotations

import re
import sys

_HOW = (
    "set PYSPARK_PYTHON (or spark.pyspark.python, on Connect in the server's environment) to a python "
    "{version} that has {what}; on this machine: {here}"
)
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([A-Za-z0-9_.]+)'")
_IMPORT = re.compile(r"\[PACKAGE_NOT_INSTALLED\]|ImportError: PyArrow")
_OURS = ("pyarrow", "pyiceberg_core", "streaming_sink", "planners", "timeline", "obstore", "tenacity", "pyspark")
_MISFIT = re.compile(r"RowsDoNotFitError: (.*)")


class WorkerEnvironmentError(RuntimeError):
    """Spark's Python workers cannot run the writer. Nothing was written; mend their environment and start again."""
