"""Roofline: how near the work of devices comes to what they can do, and what bounds it."""
