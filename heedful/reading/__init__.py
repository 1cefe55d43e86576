"""What encoder-only models say about a text: which word is missing, what it resembles, which class it has."""
