"""Jobs that run: samples taken from outside, and the live screen."""
