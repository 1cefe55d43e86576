"""Loss, metrics, optimizer, and the trainer that uses them."""
