"""Mirrors: tables of catalogs that name version files of a table at a location, for reading (R36)."""
