"""Models without a run: lint of graphs and programs, and tfprof."""
