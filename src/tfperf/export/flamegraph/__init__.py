"""Flame graphs of a run: what is asked for, its stacks, what another run has, and the file that shows it."""
