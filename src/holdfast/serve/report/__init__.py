"""``holdfast report``: all that a run directory knows of a run, as one page or one text."""
