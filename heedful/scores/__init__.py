"""Scores that can be trusted: what they were made of, how sure they are, and how those of several runs compare."""
