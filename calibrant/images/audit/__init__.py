"""What is wrong with a set of images before anything is trained on it: unreadable and odd files, copies, leaks."""
