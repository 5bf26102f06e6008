"""The demo: real flights stream into a plain Parquet folder and into an Iceberg table, side by side."""
