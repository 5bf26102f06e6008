"""How rows of a batch become data files: their table, the plan, the way to the tasks, and the job."""
