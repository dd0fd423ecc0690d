"""SQL over a profile: which tables there are, how they become Arrow columns, and DuckDB, shut in with them."""
