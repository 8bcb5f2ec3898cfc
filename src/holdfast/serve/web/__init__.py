"""The control room's web server: what guards send comes in, what a person wants to see goes out."""
