"""The doctor of a cluster: facts that servers tell, and checks that say what is wrong."""
