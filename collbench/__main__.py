"""`python -m collbench`: the same program as the console script."""

from collbench.cli import main

main()
