"""Step 24's measurements: time and memory, several processes, GPT-2's own weights."""
