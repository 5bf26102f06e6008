"""The parent of the Python workers of the tests' shared session, which start with their imports done.

Spark forks workers from it, a pool for each environment of functions. Those that run no task of the sink, as
those by which `createDataFrame` pickles rows, would read the directories of sixteen zip archives again before
each task, and collect the garbage of all imports after it (see `streaming_sink.tasks.fast_workers`). Without
this the tests of upserts take 94 s of a processor, and 49 with it.
"""

from __future__ import annotations

import pyspark.daemon
import pyspark.sql.pandas.serializers
import pyspark.worker

import streaming_sink.tasks.rows.write_task  # noqa: F401
from streaming_sink.tasks import fast_workers

if __name__ == "__main__":
    fast_workers.set_enabled(True)
    pyspark.daemon.manager()
