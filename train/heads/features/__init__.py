"""From images to a folder of features: the backbone, the views of an image, the cache and what fills it."""
