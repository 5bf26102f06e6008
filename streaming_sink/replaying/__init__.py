"""Replays: quarantined rows are repaired and written into their table, exactly once."""
