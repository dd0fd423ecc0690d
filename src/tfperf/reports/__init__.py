"""Reports: the neutral form of results, and the sentences about them."""
