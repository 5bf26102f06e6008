"""Maintenance that a person calls: snapshot expiry and the removal of orphan files."""
