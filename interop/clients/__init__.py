"""Small programs that play the scenarios as users of each client would."""
