"""The command line. `main` is the entry point; every other module covers one concern."""
