"""`images check` and `images build`: the images of a folder of tasks. The server imports none of it."""
