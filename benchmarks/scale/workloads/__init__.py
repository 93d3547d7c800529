"""Workloads of `benchmarks.scale.ladder`: stages and models in processes of their own, bounds, and the table."""
