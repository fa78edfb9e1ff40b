"""What a job communicates: its calls, its steps, and how much of a step they are. Pure: files are
read by the formats, one a file, and nothing here measures.
"""
