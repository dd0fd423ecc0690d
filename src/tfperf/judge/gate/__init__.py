"""Limits that a profile must hold: how they are written, measured, judged and reported to a CI system."""
