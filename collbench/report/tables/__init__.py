"""Tables of plain text."""
