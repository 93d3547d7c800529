"""The evaluate stage: full rankings of every fitted model, on validation and test.

`stage` is the sequence, `jobs` the batches of users, `ranking` the rankings, `calibration` evaluates the
probabilities, `tables` writes the rows, or copies those of an earlier run.
"""
