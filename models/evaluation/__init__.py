"""Evaluation of rankings and probabilities: full rankings, metrics, calibration, beyond accuracy.

Every metric is defined here: from arrays of scores and held-out edges to numbers for each user.
"""
