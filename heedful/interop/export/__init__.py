"""Export of trained runs to other engines, with a comparison of their results."""
