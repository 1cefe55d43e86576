"""Types of what backends compute with."""

from typing import Any

Tensor = Any
"""A tensor of the backend, or what it converts to one; backends have no type in common."""
Shape = Any
"""The shape of a tensor, in which an axis may be None, or a structure of shapes."""
