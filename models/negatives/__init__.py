"""Sampled negatives: drawing them, their distributions, and the probability `like` of a like against a negative.

Used by the models that draw a hidden graph or zeros, and by the evaluation of `like`.
"""
