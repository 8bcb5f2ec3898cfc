"""What is possible at all: optimal schedules of small problems and lower bounds of larger ones, from CP-SAT.

The planner's judge, not a part of it: the planner must not be slower than a solver, and the solver must not
share a mistake with the planner. ``relaxed`` gives bounds, ``exact`` schedules, ``retime`` their best times,
and ``solve`` brings them together.
"""

from oracle.options import Answer, Options
from oracle.routing import home_routes
from oracle.solve import lower_bound, solve_problem

__all__ = ["Answer", "Options", "home_routes", "lower_bound", "solve_problem"]
