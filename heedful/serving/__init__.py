"""Ways out of the house: other engines that run a trained model, checked against our own."""
