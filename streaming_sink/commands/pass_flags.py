"""How the command line spells the options of a clustering pass."""

from __future__ import annotations

SIZES = ("target_file_bytes", "small_file_bytes", "max_group_bytes", "max_bytes_per_pass", "memory_bytes")
NUMBERS = ("max_group_files", "max_groups", "overlap_at_least", "max_commits")


def flag(name: str) -> str:
    """Return how the command line spells an option of a pass."""
    return "--parameter" if name == "parameters" else f"--{name.replace('_', '-')}"
