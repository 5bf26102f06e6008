"""Maintenance on demand: expire snapshots, remove orphan files."""
