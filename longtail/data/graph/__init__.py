"""GRAPH: training rows -> LabelGraph."""
