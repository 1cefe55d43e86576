"""Scores with their provenance and confidence intervals, and comparisons of runs."""
