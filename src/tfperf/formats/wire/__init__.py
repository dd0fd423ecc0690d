"""The wire format: bytes to columns. Nothing here knows what a step is."""
