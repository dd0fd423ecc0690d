"""Limits that a profile must hold: how they are written, measured, judged and told to a CI system."""
