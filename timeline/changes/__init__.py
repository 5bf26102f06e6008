"""The kinds of change to a table, and what each needs of the head that it lands on."""
