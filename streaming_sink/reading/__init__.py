"""Reading a table: what it holds, as values; and what its versions added and deleted, as a feed."""
