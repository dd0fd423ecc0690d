"""Keras imports this where it can, to draw pictures, and takes a second for it. Jobs of tests draw none."""

raise ImportError("a job of a test needs no matplotlib")
