"""Negatives: how they are drawn, the laws that they follow, and what `like` means against them.

Shared by the models that draw a hidden graph or zeros, and by the judge of `like`.
"""
