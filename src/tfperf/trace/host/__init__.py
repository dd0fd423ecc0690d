"""Host threads: what each did when, and its ops, Python frames and tasks."""
