"""Processes that train together: how they are started, and how each finds its place."""
