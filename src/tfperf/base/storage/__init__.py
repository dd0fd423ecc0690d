"""Addresses of other machines: which are known, how they are listed, read and written through fsspec."""
