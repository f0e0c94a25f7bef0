"""The trajectory data set: two flat Parquet tables, and the returns computed from them."""
