"""Plots of curves, in pictures and in characters."""
