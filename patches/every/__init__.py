"""One file for each cause that any model may meet."""
