"""Hostile logs made from a seed, and what a naive reader makes of them; `benchmarks.fuzz_readers` compares."""
