"""From a model to text: search, and the translator around it."""
