"""Publish: the choice of a model, its recommendations for everybody, their files, and the promotion."""
