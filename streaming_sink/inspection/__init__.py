"""Inspection: what a table holds, as values: schema, files, partitions, snapshots, plans, applications."""
