"""Host threads: their activity over time, ops, Python frames and tasks."""
