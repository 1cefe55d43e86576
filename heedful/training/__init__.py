"""Loss, metrics, optimizer, and the trainer that puts them to work."""
