"""What came after: exact recovery of batches."""
