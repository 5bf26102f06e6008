"""One batch, step by step: opened, fitted, planned, written, judged, committed, reported."""
