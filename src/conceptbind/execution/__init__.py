"""Where the jobs of a sweep run: in this process, in worker processes, or on a Ray cluster."""
