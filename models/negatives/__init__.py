"""Negatives: how they are drawn, their laws, and the probability `like` of a like against a negative.

Used by the models that draw a hidden graph or zeros, and by the evaluation of `like`.
"""
