"""Floor 0: what every other package stands on, and which imports none of them.

Errors and how they are told (`errors`, `diagnostics`, `tracebacks`), options (`knobs`), names
(`names`), who draws a node (`display`), and the disk cache of compiled objects (`cache`).
Start with `errors`: nothing but its classes may reach a user.
"""
