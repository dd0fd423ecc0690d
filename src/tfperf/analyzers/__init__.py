"""Analyzers: one module per question; pure functions that know nothing of each other."""
