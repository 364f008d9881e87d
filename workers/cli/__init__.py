"""The command line. `main` is the entry point; each other module has the commands of one concern."""
