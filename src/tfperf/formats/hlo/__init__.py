"""XLA programs: structure and cost."""
