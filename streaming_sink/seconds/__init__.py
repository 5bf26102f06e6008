"""The second tables of a sink, its quarantine and its change log: they follow the main one, exactly once."""
