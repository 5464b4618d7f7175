"""Other settings than a plain forward pass: each is run, and something must hold there.

A setting is a function of a case. It gives a fault with what was run that shows it; or
the words for what was run and found right, for the report's list; or None, where the
setting says nothing of this module. What is right as it was asked for, and wrong only
where nobody asked, is noted with `case.risk`.
"""
