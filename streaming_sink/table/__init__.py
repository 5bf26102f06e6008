"""The table as the driver sees it: schema, partition spec, properties and data files."""
