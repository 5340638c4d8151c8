"""The agent server: one HTTP call runs one trial on Harbor in a sandbox and answers with its reward."""
