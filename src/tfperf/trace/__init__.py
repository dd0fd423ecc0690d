"""The trace of a host as columns, and data derived from it: nesting, links, steps and activities."""
