"""The documents and what makes the generated parts of them."""
