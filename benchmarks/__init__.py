"""Measurements that are run by hand; what they found is committed."""
