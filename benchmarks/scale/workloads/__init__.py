"""Of `benchmarks.scale.ladder`: the logs, the stages and models timed in processes of their own, the machine's limits,
the table.
"""
