"""JAX: calls of compiled functions, and the loops and steps made of them."""
