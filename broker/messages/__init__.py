"""Messages on their way into the store: their admission, their properties, and their kinds."""
