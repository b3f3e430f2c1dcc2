"""What lies below the folder of the dashboard."""
