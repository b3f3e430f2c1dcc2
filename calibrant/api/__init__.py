"""What `import calibrant` offers: the stages put together for a notebook, as `commands` does for a shell."""
