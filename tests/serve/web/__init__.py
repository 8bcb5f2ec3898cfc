"""The web server, on a real port."""
