"""Keras imports this where it can, to train on tables. Jobs of tests that train on none have no pandas."""

raise ImportError("this job needs no pandas")
