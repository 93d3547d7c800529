"""Filters of the normalised graph of users and items: linear, low-pass, sharpened.

`model` has the formula and the settings, `graph` the normalised graph and its top singular vectors.
"""

from oneclass.models.graph_filter.model import GraphFilter

__all__ = ["GraphFilter"]
