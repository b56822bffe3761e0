"""Linear Road: position reports of vehicles, and the two queries LR2 and LR4 in the form that MiSA measures."""
