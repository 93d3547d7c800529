"""The one visual hand of every page: the report, an explanation, the overview of a home.

Colours for both themes, how numbers are written, small lines, and the shell that a page's own template fills.
"""
