"""The index of keys: sorted runs of hashes, derived from data files, that tasks look keys up in."""
