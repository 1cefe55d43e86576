"""Models of other libraries: what each can compute, import and export."""
