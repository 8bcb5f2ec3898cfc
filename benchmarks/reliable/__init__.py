"""What ``reliability.py`` is made of: made-up clusters whose truth is known, and what is found in them."""
