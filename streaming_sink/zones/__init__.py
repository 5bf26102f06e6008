"""A buffer zone: announcements, plans, index, ledger, claims, status, cleaning; Spark in audits alone."""
