"""The pages of the console, and the changes that they make."""
