"""Views of a topology: matrix, tables, tree, drawing."""
