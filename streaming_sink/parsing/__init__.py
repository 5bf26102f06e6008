"""JSON text to columns, batch by batch, before the sink takes the batch."""
