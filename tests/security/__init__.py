"""Attacks, and what holds against them."""
