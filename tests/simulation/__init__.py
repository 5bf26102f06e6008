"""A deterministic simulator of the commit protocol. `python -m tests.simulation SEED` replays a schedule."""
