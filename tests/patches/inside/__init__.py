"""What runs inside an upstream environment, in the child that a case has for itself. Imports nothing of pytest's."""
