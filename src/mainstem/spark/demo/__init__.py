"""`make demo`: a broker, a shop's orders, two streaming pipelines, a live view, a plot and an audit, in two minutes."""
