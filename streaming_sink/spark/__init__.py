"""What the sink asks of Spark: who calls, which settings a job needs, and why a worker failed."""
