"""Finds the rows of a table by their key: hashes of keys, and where the rows of each hash are."""
