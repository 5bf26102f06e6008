"""The change feed: which rows a table got and lost, version by version."""
