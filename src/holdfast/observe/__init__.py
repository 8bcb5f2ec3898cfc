"""Files and streams that others wrote, turned into values."""
