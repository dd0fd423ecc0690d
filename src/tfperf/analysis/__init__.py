"""Analysis of a run: run the sections for each host and combine their results."""
