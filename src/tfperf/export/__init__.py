"""Other forms of a profile: SQL and Parquet tables, trace viewer files, flame graphs, anonymous copies."""
