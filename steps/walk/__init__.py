"""What runs the steps, records them and renders the record."""
