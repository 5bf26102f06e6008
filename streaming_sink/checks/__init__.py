"""Which rows fail, by conditions and by the types of the table, and the table that keeps the failing ones."""
