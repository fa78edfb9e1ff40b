"""Simulations that show how often a statement of the tool is false. No test runs them: they take
minutes. Each is a module: `python -m tests.benchmarks.chance_gains`.
"""
