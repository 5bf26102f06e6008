"""The rows of a batch in a task: checked, partitioned, and cut into data files."""
