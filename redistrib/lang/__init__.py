"""What can be said: the notation, meshes and distributed types."""
