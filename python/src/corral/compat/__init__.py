"""The calls of other sandboxes, for programs that were written for them."""
