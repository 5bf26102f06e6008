"""Schedules of a table in a catalog, which other engines write to as well."""
