"""Check limits on a profile, and compare two runs."""
