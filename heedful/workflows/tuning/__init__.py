"""Tuning: which settings give the best model of a text in a given time.

`space` has the choices, `planning` draws trials from them, `trials` trains one, `halving` decides which go on, and
`outcome` writes the best recipe, a table and a picture.
"""
