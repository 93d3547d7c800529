"""Filters of the normalised graph of users and items: linear, low-pass, Chebyshev, sharpened.

`model` has the formula, `settings` what can be chosen, `graph` the normalised graph and its top singular vectors,
`polynomials` the series that a filter is made of, `walks` the scores of blocks of users, `paths` single entries.
"""

from oneclass.models.graph_filter.model import GraphFilter

__all__ = ["GraphFilter"]
