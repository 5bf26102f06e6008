"""What may leave a table: expired snapshots, old versions, and the files that only they reach."""
