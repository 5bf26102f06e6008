"""The commands of `ingest`: a buffer zone, what is decided in it, and its workers."""
