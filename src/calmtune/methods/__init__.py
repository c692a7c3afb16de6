"""What a training method adds to plain fine-tuning, one file a method."""
