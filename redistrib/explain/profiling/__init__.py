"""Inspection, comparison and timing of compiled programs and their collectives."""
