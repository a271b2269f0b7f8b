"""Pages and notebook views of plans, trees, programs, diagnoses, searches and simulations."""
