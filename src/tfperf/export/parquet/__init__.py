"""A profile as a dataset of Parquet files, for DuckDB, dask, Spark and others."""
