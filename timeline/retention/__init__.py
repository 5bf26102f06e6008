"""Retention: which snapshots expire, which versions are old, and which files only they reach."""
