"""Jobs with something wrong in them, profiled while they run; and what others make of the same traces."""
