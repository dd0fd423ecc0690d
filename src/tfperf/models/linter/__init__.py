"""What the shapes and ops of a program waste on a TPU or a GPU, told before it runs: rules, and what they find."""
