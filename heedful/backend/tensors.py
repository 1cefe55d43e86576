"""Types of what backends compute with, and a value that all of them share."""

from typing import Any

Tensor = Any
"""A tensor of the backend, or what it converts to one; backends have no type in common."""
Shape = Any
"""The shape of a tensor, in which an axis may be None, or a structure of shapes."""
HIDDEN_SCORE = -1e30
"""The score of a key that attention does not see: its weight is exactly 0 if any key is seen."""
