"""What leaves a table: snapshots, orphans, and rows of a key, by law out of all bytes."""
