"""Half messages: stored and invisible until their producer decides. Which are checked, moved, given up."""
