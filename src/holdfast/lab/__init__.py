"""A real world that we break on purpose: demo jobs, fault injectors, a director that times them."""
