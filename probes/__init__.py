"""What machine this is, what of it this process may use, how fit it is to measure on."""
