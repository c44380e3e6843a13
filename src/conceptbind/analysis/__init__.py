"""One file for each finding of the paper."""
