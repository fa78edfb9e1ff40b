"""Tables and pictures for people: data in, text out. Nothing here measures."""
