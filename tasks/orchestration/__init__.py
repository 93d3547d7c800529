"""The use of Prefect: stages as tasks, artifacts, progress, and the summaries of runs. Stages are plain functions."""
