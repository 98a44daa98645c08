"""The cluster's metadata: the image that its records make, and the controller that decides which records to write."""
