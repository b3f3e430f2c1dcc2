"""What can be set in training, described once and without torch.

It lies on the floor because the commands of train and the pages of the dashboard both read it. The dashboard may not
import train: a page must open where torch is not installed, and in the time that a page may take.
"""
