"""Rules that find shapes and ops that waste TPU or GPU resources, before a program runs."""
