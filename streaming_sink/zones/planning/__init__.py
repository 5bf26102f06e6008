"""Plans work items from announcements, and keeps the index by which files are found in plans."""
