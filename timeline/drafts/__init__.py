"""The version that a commit would publish, built from a head: snapshots, manifests, summaries, properties."""
