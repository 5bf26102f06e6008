"""Row groups as bytes: found by a Parquet file's footer, copied into another file, and named in its own."""
