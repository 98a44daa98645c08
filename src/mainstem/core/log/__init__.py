"""What one log decides: which batches it takes, who produced them, where its epochs begin, what may be cleaned."""
