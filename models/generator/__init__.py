"""The generative model: factors, a hidden graph of given degrees, and likes as coin flips on its edges.

The demo's log is made by it.
"""
