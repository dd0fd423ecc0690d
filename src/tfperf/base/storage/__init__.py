"""Remote addresses: supported schemes, and listing, reading and writing through fsspec."""
