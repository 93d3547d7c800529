"""Explain one user's recommendations: the published list, its certainty, and the reasons.

`explanation` collects them; `views` shows them.
"""
