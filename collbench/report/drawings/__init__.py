"""Drawings of schedules, and the shapes that drawings are made of."""
