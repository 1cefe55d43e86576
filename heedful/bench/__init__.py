"""The same work by heedful and by what people use today, alternating in one run, as one table."""
