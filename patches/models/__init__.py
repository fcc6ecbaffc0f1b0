"""One file for each model family."""
