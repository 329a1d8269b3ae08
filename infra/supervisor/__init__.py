"""One parent for all processes of a deployment on one machine: it starts, watches, restarts and stops them."""
