"""Deletes for the law: what a table and its second tables hold of a key, and how that leaves the bytes."""
