"""Raw logs as they are found in the world, as a stream of batches."""
