"""The store, against real SQLite files and a real PostgreSQL."""
