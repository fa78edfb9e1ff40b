"""How a topology looks: matrix, tree, tables."""
