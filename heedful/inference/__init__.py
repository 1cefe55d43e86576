"""Trained runs at work: a predictor for each kind of model, complete when it is constructed, shared by threads."""
