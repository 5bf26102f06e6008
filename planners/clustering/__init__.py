"""The clustering planner: which files are rewritten together, and in which order of rows."""
