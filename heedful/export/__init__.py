"""Trained runs for other engines, and the comparison of their results with ours."""
