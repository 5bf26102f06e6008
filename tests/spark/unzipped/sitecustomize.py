"""First on the path of Spark's workers: they import PySpark from its folder, where what is compiled is kept,
and not from the archive that Spark puts before it, of which each of them compiles two hundred modules.
"""

from __future__ import annotations

import sys

sys.path[:] = [each for each in sys.path if not each.endswith(("/pyspark.zip", "-src.zip"))]
