"""Optional packages, which the extras of this package install."""


class MissingExtraError(ImportError):
    """A package that this use needs is not installed; the message has the line that installs it."""
