"""The pure part of the sharing pass; works on numbers only."""
