"""Runs side by side: what is kept of a run, whether another is slower, and what explains the change."""
