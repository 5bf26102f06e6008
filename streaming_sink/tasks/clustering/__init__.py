"""The worker's half of clustering: the rows of one group, in a new order, into new files."""
