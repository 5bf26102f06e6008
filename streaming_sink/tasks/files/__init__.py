"""Data files and delete files, as tasks read and write them."""
