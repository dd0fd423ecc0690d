"""Keras imports this where it can, to draw in notebooks. Jobs of tests run in none."""

raise ImportError("a job of a test needs no IPython")
