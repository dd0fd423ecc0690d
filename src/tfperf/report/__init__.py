"""Reports: the neutral form of results, between sections and renderers."""
