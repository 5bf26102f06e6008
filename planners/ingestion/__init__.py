"""Plans of buffered ingestion: which files land together, in which tasks, and who lands them."""
