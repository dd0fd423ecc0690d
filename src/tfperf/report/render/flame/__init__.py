"""Flame graphs for HTML reports, standalone pages and pictures; and stacks for other programs."""
