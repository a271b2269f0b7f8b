"""The language of the problem: meshes, distributed types and their notation."""
