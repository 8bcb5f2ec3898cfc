"""What ``localize_scale.py`` is made of: workers that were never there, and what is wrong with some."""
