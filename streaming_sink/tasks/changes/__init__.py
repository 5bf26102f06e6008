"""Changes by key in a task: the newest of each key, the rows that they replace, and what is written."""
