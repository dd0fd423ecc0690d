"""Programs of XLA: what they are made of, and what they cost."""
