"""Getting a raw log: local files, downloads, packages, and logs that are drawn."""
