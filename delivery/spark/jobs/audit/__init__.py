"""`hoot spark audit`: what was published against what was delivered and acknowledged, as a table and as a report."""
