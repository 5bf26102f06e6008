"""How a catalog is connected to, and how it states that the files of its tables are reached."""
