"""A buffer zone without Spark: announcements, plans, the index, the ledger, claims, status and cleaning."""
