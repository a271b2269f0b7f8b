"""How long processes wait for one another, whatever library they call; in seconds."""

WAIT_SECONDS = 300.0  # for a process that takes longer to plan and compile, or never calls
REPEATED_SECONDS = 2.0  # for a process at the barrier of a call on which all have agreed before
LOOK_SECONDS = 1.0  # in a call before a process looks for what holds it up, such as processes that have ended
