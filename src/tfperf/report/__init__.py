"""Reports: the format-independent form of results, used by sections and renderers."""
