"""A world that is not there: one event kernel, traces of failures, and what strategies make of them."""
