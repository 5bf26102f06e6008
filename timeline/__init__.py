"""A plain Iceberg table on any store that creates a file only if it is absent: its versions, its head, its
commits.

Usable without Spark. See `Table`, `open_store` and docs/protocol.md.
"""
