"""Runs side by side: what a run came to, whether another is slower, and what explains the change."""
