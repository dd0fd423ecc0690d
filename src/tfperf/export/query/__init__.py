"""SQL over a profile: table declarations, Arrow columns, and a sandboxed DuckDB."""
