"""The watcher of `cputune daemon`: when to measure again, what to run, and why."""
