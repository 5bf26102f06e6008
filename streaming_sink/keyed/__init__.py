"""Changes by key, on the driver: which rows they replace, the deletes remembered, the index of keys."""
