"""What `hoot spark …` does, each job a plain function that takes a session and gives a record of what was done."""
