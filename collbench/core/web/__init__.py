"""What pages and pictures share: colors, SVG, HTML."""
