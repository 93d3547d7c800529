"""Tuning: searches of a model's declared search space with Optuna, evaluated on validation users or edges only."""
