"""Profiles as files for trace viewers: what to show, on which tracks, in which format."""
