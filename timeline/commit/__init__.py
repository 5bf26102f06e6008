"""A commit: its changes, its checks, the draft of the next version, and how that is published."""
