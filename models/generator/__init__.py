"""The generative story: traits, a hidden graph of given degrees, likes as coin flips on its edges.

What the demo is made by, and the truth that `like` is judged against.
"""
