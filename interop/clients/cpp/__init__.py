"""The program that plays scenarios with the C++ client's Python wheel."""
