"""Files that are translated as a whole or in shares: their formats, and the shares of one file on many machines."""
