"""The pages, one file each, with `render(shelf)`."""
