"""Files that are created once, and decide by what they hold: versions, entries of logs, staged batches."""
