"""Judgements: limits of a check, and the comparison of two runs."""
