"""How a topology looks: matrix, tree, drawing."""
