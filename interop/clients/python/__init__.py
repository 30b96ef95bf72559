"""The scenarios, written as a user of our client would, for each of its APIs."""
