"""What stands behind the modules of Miles' names: parser, loop, session server, files."""
