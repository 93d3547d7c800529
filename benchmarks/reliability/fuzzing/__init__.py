"""Hostile logs made from a seed, and what a naive reader makes of them; `benchmarks.reliability.fuzz_readers` compares."""
