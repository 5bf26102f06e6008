"""The versions of a table: version files, the log of them, and what one version says."""
