"""Search, engines, measurement and the command line."""
