"""What PyTorch says: capture, hierarchy, reference and cuts."""
