"""Tuning: which settings give the best model of a text in a given time.

`space` has the choices, `trials` trains one of them, `halving` decides which go on, and `outcome` writes what was
found.
"""
