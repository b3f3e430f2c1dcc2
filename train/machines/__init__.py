"""Training by several processes, of which one may be lost: torchrun and Ray Train start the group again."""
