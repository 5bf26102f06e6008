"""The demo: real flights stream into two Iceberg tables, by Iceberg's own sink and by ours, side by side."""
