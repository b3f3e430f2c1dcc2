"""What lies in object storage, and what runs on other machines."""
