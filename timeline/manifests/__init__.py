"""Manifests: their entries, what they say of live files and deletes, and which are merged."""
