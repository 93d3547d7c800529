"""What touches Prefect: the task round a stage, artifacts, progress, the run's summary.

A stage itself is a plain function and knows none of it.
"""
