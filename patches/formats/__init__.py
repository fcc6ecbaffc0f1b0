"""One file for each format of checkpoints, whatever the family."""
