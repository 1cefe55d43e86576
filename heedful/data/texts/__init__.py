"""Texts that have a name, and can be downloaded."""
