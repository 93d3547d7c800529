"""Ingest, binarize and split over partitions by the hash of the user's id, each with a DuckDB file of its own.

`steps` has what a worker does with one log or one partition, `reductions` what is brought together between them, `truth` one
machine's tables and the comparison; `benchmarks.partitions` runs them. All of them meet in one folder that every worker sees.
"""
