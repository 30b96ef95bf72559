"""Access control: the accounts of both generations, and the check of requests by them."""
