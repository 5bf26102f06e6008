"""What a sink does for its table after commits: fills, folds, clusterings; in a batch or beside it."""
