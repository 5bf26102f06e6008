"""A buffer zone: announcements, plans, index, ledger, claims, status, cleaning; without Spark."""
