"""Profiles as files for trace viewers: selection, tracks and formats."""
