"""Explain one user's recommendations: each model's list, its certainty, and the reasons.

`explanation` collects them; `views` shows them.
"""
