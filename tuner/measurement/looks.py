"""When a comparison may stop and claim something: numbers, apart from the arithmetic, which needs arrays."""

LOOKS = (8, 12, 16)
"""The numbers of process pairs at which a confirmation may stop."""
LOOK_CONFIDENCE = 0.993
"""Asked of each look; what a look reaches exactly is in its interval (8 pairs reach 99.2 % at most)."""
FEWEST_FOR_A_CLAIM = 5
"""Fewer agreeing pairs come about by chance too often: 4 in 12.5 % of comparisons of equals, 5 in 6.25 %."""
