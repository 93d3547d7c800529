"""How well a ranking or a probability serves: full rankings, metrics, calibration, beyond accuracy.

Arrays of scores and held-out edges in, numbers a user out; every metric is defined here.
"""
