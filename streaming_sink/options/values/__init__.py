"""The options that have a meaning of their own, each a value that checks itself when it is made."""
