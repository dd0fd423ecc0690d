"""The trace of a host as columns, and what follows from it: nesting, links, steps, activities."""
