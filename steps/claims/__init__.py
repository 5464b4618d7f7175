"""What is said of each step beside its tensors: notes, and claims that are checked."""
