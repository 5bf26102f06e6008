"""Reports: what became of a batch and of the work beside it, as data; and where they are handed over."""
