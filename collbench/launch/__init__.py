"""Who the ranks are, how they are started, watched and ended."""
