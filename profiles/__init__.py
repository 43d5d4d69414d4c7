"""What is known: vocabulary, stored measurements and published profiles."""
