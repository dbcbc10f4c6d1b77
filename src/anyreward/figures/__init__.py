"""Drawing only: reads results, never trains."""
