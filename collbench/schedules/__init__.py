"""What an algorithm is: the schedule, what can be read off it, and the proof that it is right."""
