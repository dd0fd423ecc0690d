"""Copies of profiles whose names are replaced: structure and numbers stay, so that people can send them."""
