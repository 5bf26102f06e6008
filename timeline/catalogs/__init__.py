"""Tables in a catalog: a commit log whose commits are updates under requirements, beside other engines."""
