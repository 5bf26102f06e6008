"""What a catalog must show before anything is written through it (R33)."""
