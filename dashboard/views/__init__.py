"""The pages, one file each, with `render(folder_index)`."""
