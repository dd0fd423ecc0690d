"""Other forms of a profile: tables for SQL and Parquet, traces for viewers, flame graphs, anonymous copies."""
