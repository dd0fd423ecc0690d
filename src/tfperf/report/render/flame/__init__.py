"""Flame graphs: one drawing for a page of its own, a picture, and pages of reports; and stacks for other programs."""
