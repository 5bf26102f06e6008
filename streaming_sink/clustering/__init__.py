"""Carrying out clustering plans: rows that are asked for together come to lie in the same files.

`execution.execute` runs on the driver; `task` runs inside Spark tasks, where a strategy of `strategies` puts
a group's rows in order within bounded memory. Nothing is imported here: a new Python worker pays for imports.
"""
