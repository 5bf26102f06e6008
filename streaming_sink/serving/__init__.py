"""The catalog of buffered ingestion over HTTP: read-only JSON, and a page, for people and programs."""
