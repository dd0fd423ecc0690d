"""Models without a run: the linter of graphs and programs, and tfprof."""
