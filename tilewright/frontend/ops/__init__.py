"""Converters to the newest form of operators whose signature or meaning changed, one file a family."""
