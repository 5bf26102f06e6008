"""Source files of a buffer zone: found, read, profiled, and written as right-sized data files."""
